//! What file systems say they are: `f_type` of `statfs` (`linux/magic.h`, and the headers of those that are not in it).

pub(super) const TMPFS: u32 = 0x0102_1994;
pub(super) const RAMFS: u32 = 0x8584_58f6;
pub(super) const HUGETLBFS: u32 = 0x9584_58f6;
/// `lustre_user.h`.
pub(super) const LUSTRE: u32 = 0x0bd0_0bd0;

/// Those with nothing below memory.
const MEMORY_ONLY: [u32; 3] = [TMPFS, RAMFS, HUGETLBFS];

/// The names that `mount` shows.
const NAMES: [(u32, &str); 22] = [
    (0x0000_ef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (HUGETLBFS, "hugetlbfs"),
    (0x794c_7630, "overlay"),
    (0x0000_6969, "nfs"),
    (LUSTRE, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x00c3_6400, "ceph"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x6573_5546, "fuse"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x0102_1997, "9p"),
    (0x2011_bb1e, "weka"),
];

/// The type that `statfs` told; it comes in different widths on different processors.
pub(super) fn kind(stat: &rustix::fs::StatFs) -> u32 {
    stat.f_type as u32
}

/// Whether files of this type are only in memory.
pub(super) fn is_memory_only(kind: u32) -> bool {
    MEMORY_ONLY.contains(&kind)
}

/// The name of a type, or its number.
pub(super) fn name(kind: u32) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == kind);
    known.map_or_else(|| format!("{kind:#x}"), |(_, name)| (*name).to_owned())
}
