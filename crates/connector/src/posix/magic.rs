//! What file systems say they are: `f_type` of `statfs` (`linux/magic.h`, and the headers of those that are not in it).

pub(super) const TMPFS: u32 = 0x0102_1994;
pub(super) const RAMFS: u32 = 0x8584_58f6;
pub(super) const HUGETLBFS: u32 = 0x9584_58f6;
/// `lustre_user.h`.
pub(super) const LUSTRE: u32 = 0x0bd0_0bd0;

const NFS: u32 = 0x0000_6969;
const CIFS: u32 = 0xff53_4d42;
const SMB2: u32 = 0xfe53_4d42;
const FUSE: u32 = 0x6573_5546;
const PLAN9: u32 = 0x0102_1997;
/// `fs/afs/afs.h`, which `linux/magic.h` calls `AFS_FS_MAGIC`, and OpenAFS's own.
const AFS: [u32; 2] = [0x6b41_4653, 0x5346_414f];

/// Those that send what was written no later than when the file is closed, and tell only then, or when it is synced, that there was
/// no room for it, or that it is lost (nfs(5), close(2)).
const LATE: [u32; 7] = [NFS, CIFS, SMB2, FUSE, PLAN9, AFS[0], AFS[1]];

/// They keep what was read and written in a memory of their own, beside the kernel's pages.
const ZFS: u32 = 0x2fc1_2fc1;
const GPFS: u32 = 0x4750_4653;
const WEKA: u32 = 0x2011_bb1e;

/// Those of which the kernel's pages do not tell what is read from memory: FUSE leaves it to the program behind it.
const OWN_CACHE: [u32; 4] = [ZFS, GPFS, WEKA, FUSE];

/// Those with nothing below memory.
const MEMORY_ONLY: [u32; 3] = [TMPFS, RAMFS, HUGETLBFS];

/// The names that `mount` shows.
const NAMES: [(u32, &str); 22] = [
    (0x0000_ef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (ZFS, "zfs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (HUGETLBFS, "hugetlbfs"),
    (0x794c_7630, "overlay"),
    (NFS, "nfs"),
    (LUSTRE, "lustre"),
    (GPFS, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x00c3_6400, "ceph"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (FUSE, "fuse"),
    (CIFS, "cifs"),
    (SMB2, "smb2"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (PLAN9, "9p"),
    (WEKA, "weka"),
];

/// The type that `statfs` told; it comes in different widths on different processors.
pub(super) fn kind(stat: &rustix::fs::StatFs) -> u32 {
    stat.f_type as u32
}

/// Whether files of this type are only in memory.
pub(super) fn is_memory_only(kind: u32) -> bool {
    MEMORY_ONLY.contains(&kind)
}

/// Whether files of this type take bytes that they may turn out not to have when they are closed.
pub(super) fn tells_late(kind: u32) -> bool {
    LATE.contains(&kind)
}

/// Whether files of this type may be read from memory though none of their pages is in the kernel's.
pub(super) fn caches_itself(kind: u32) -> bool {
    OWN_CACHE.contains(&kind)
}

/// The name of a type, or its number.
pub(super) fn name(kind: u32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == kind);
    known.map_or_else(|| format!("{kind:#x}"), |(_, name)| (*name).to_owned())
}
