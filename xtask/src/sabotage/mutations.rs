//! What is taken out, and who is to notice.

use crate::command::Result;

/// A suite: arguments of cargo, and of the test program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    pub target: &'static [&'static str],
    pub filter: &'static [&'static str],
}

impl Suite {
    /// As a person would type it.
    pub fn shown(self) -> String {
        let dashes: &[&str] = if self.filter.is_empty() { &[] } else { &["--"] };
        format!("cargo {}", [self.target, dashes, self.filter].concat().join(" "))
    }
}

/// A small change of the source by which something is missing.
pub struct Mutation {
    pub name: &'static str,
    /// What is lost or wrong without it.
    pub guards: &'static str,
    pub file: &'static str,
    /// Occurs once in the file.
    find: &'static str,
    replace: &'static str,
    pub suite: Suite,
}

impl Mutation {
    /// The file with the change.
    pub fn applied(&self, text: &str) -> Result<String> {
        match text.matches(self.find).count() {
            1 => Ok(text.replacen(self.find, self.replace, 1)),
            count => Err(format!("{}: what it replaces occurs {count} times in {}", self.name, self.file)),
        }
    }
}

pub(super) const fn suite(target: &'static [&'static str], filter: &'static [&'static str]) -> Suite {
    Suite { target, filter }
}

pub(super) const fn mutation(
    name: &'static str,
    guards: &'static str,
    file: &'static str,
    find: &'static str,
    replace: &'static str,
    suite: Suite,
) -> Mutation {
    Mutation { name, guards, file, find, replace, suite }
}

/// The order of steps in a POSIX file system, as the library notes it.
const STEPS: Suite = suite(&["test", "-p", "whimbrel-connector", "--lib"], &["posix"]);
const POSIX: Suite = suite(&["test", "-p", "whimbrel-connector", "--test", "posix_writers"], &[]);
const JOURNAL: Suite = suite(&["test", "-p", "whimbrel-engine", "--lib"], &["journal"]);
const ENGINE: Suite = suite(&["test", "-p", "whimbrel-engine", "--lib"], &["transfer"]);
/// Power cuts and kills at every step of two hosts.
const CRASHES: Suite = suite(&["test", "-p", "whimbrel-dtn", "--lib"], &["mover::chunk"]);
const CLIENT: Suite = suite(&["test", "-p", "whimbrel-dtn", "--lib"], &["client"]);
const DURABLE: Suite = suite(&["test", "-p", "whimbrel-dtn", "--test", "mover_durability"], &[]);
const VOUCHING: Suite = suite(&["test", "-p", "whimbrel-dtn", "--test", "mover_vouching"], &[]);
const VERSIONS: Suite = suite(&["test", "-p", "whimbrel-dtn", "--test", "mover_versions"], &[]);
const CHUNKS: Suite = suite(&["test", "-p", "whimbrel-dtn", "--test", "mover_chunks"], &[]);
const PAST_MEMORY: Suite = suite(&["test", "-p", "whimbrel-dtn", "--test", "mover_past_memory"], &[]);
/// The system calls of a server, by `strace`.
const CALLS: Suite = suite(&["test", "-p", "whimbrel", "--test", "durability"], &[]);
const INTEGRITY: Suite = suite(&["test", "-p", "whimbrel", "--test", "integrity"], &[]);
const OTHERS: Suite = suite(&["test", "-p", "whimbrel", "--test", "other_servers"], &[]);
const RUNS: Suite = suite(&["test", "-p", "whimbrel", "--test", "fault_runs"], &["fifty"]);

const STEPS_RS: &str = "crates/connector/src/posix/steps.rs";
const JOURNAL_RS: &str = "crates/connector/src/posix/journal.rs";
const WRITE_RS: &str = "crates/connector/src/posix/write.rs";
const BEGUN_RS: &str = "crates/connector/src/posix/begun.rs";
const COMMIT_RS: &str = "crates/connector/src/posix/commit.rs";
const CHUNK_RS: &str = "crates/dtn/src/mover/chunk.rs";
const RECEIVE_RS: &str = "crates/dtn/src/mover/receive.rs";
const RECEIVED_FILE_RS: &str = "crates/dtn/src/mover/receive/file.rs";
const RECEIVED_FLOW_RS: &str = "crates/dtn/src/mover/receive/flow.rs";
const UNNAMED_RS: &str = "crates/connector/src/posix/unnamed.rs";
const PACK_RS: &str = "crates/dtn/src/mover/pack.rs";
const OPENING_RS: &str = "crates/dtn/src/mover/chunk/opening.rs";
const WRITING_RS: &str = "crates/dtn/src/mover/chunk/writing.rs";
const READING_RS: &str = "crates/engine/src/journal/reading.rs";
const RECORDS_RS: &str = "crates/engine/src/records.rs";
const COMPARE_RS: &str = "crates/dtn/src/client/chunk/compare.rs";
const FLIGHT_RS: &str = "crates/dtn/src/client/flight.rs";
const PROOF_RS: &str = "crates/dtn/src/client/flight/proof.rs";

const SYNCED_THEN_NAMED: &str = "        finalize(handle, &stat, attributes, mode, path)?;
        // Syncing may take long; where locks are not kept, another writer may have removed it, and the name is of another file.
        match statx_now(&handle.file) {
            Ok(stat) if stat.stx_nlink > 0 => {}
            Ok(_) | Err(Errno::STALE) => return Err(taken(session)),
            Err(errno) => return Err(fault(errno, \"commit\", path)),
        }
        self.give_name(\"commit\", (&handle.dir, from), (&handle.dir, to), path)?;
";

const NAMED_THEN_SYNCED: &str = "        match statx_now(&handle.file) {
            Ok(stat) if stat.stx_nlink > 0 => {}
            Ok(_) | Err(Errno::STALE) => return Err(taken(session)),
            Err(errno) => return Err(fault(errno, \"commit\", path)),
        }
        self.give_name(\"commit\", (&handle.dir, from), (&handle.dir, to), path)?;
        finalize(handle, &stat, attributes, mode, path)?;
";

pub const MUTATIONS: &[Mutation] = &[
    // --- syncs -------------------------------------------------------------------------------
    Mutation {
        name: "sync: the call fdatasync",
        guards: "everything that is called durable",
        file: STEPS_RS,
        find: "    retry(|| fdatasync(&file))?;\n",
        replace: "",
        suite: CALLS,
    },
    Mutation {
        name: "sync: the call fsync of a file",
        guards: "times and modes of a committed file",
        file: STEPS_RS,
        find: "    retry(|| fsync(&file))?;\n",
        replace: "",
        suite: CALLS,
    },
    Mutation {
        name: "sync: the call fsync of a directory",
        guards: "names that a crash takes back",
        file: STEPS_RS,
        find: "        Ok(real) => retry(|| fsync(&real))?,\n",
        replace: "        Ok(_) => {}\n",
        suite: CALLS,
    },
    Mutation {
        name: "sync: an append to the journal",
        guards: "a leaf that was kept and has to be sent again",
        file: JOURNAL_RS,
        find: "        steps::sync_data(file).or_fault(WRITE, &self.path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: the journal's name",
        guards: "a journal that is gone after a crash",
        file: JOURNAL_RS,
        find: "            steps::sync_dir(&self.dir).or_fault(\"sync directory\", &self.path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: what is begun where something was proven",
        guards: "a proof that a loss of power brings back, of a leaf that was written again",
        file: WRITING_RS,
        find: "        if withdraws {\n",
        replace: "        if withdraws && false {\n",
        suite: CRASHES,
    },
    Mutation {
        name: "sync: a journal that was cut",
        guards: "a torn end that comes back in front of what was appended since",
        file: JOURNAL_RS,
        find: "        steps::sync_data(file).or_fault(op, &self.path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: data, in the connector",
        guards: "a leaf that is proven and differs after a crash",
        file: WRITE_RS,
        find: "        match self.handle.sync_data() {\n",
        replace: "        match Ok::<(), Errno>(()) {\n",
        suite: STEPS,
    },
    Mutation {
        name: "sync: data before memory is to forget them",
        guards: "dirty pages that stay, and are read instead of the disk",
        file: WRITE_RS,
        // The first of them alone is made up for by the second, which is meant for pages that others dirty meanwhile.
        find: "        self.sync_range(range.clone())?;\n        if self.handle.kind != Kind::File {\n            return Ok(ReadsFrom::Memory);\n        }\n        \
               if self.in_memory() {\n            return Ok(ReadsFrom::OnlyMemory);\n        }\n        \
               if self.file_system().is_some_and(magic::caches_itself) {\n            return Ok(ReadsFrom::Memory);\n        }\n        \
               for _ in 0..DROP_ATTEMPTS {\n            if range.is_empty() || self.forget(&range)? {\n                \
               return Ok(ReadsFrom::Storage);\n            }\n            \
               // Somebody writes the neighbourhood: what is dirty stays until it is stored.\n            self.sync_range(range.clone())?;\n",
        replace: "        if self.in_memory() {\n            return Ok(ReadsFrom::OnlyMemory);\n        }\n        \
                  if self.file_system().is_some_and(magic::caches_itself) {\n            return Ok(ReadsFrom::Memory);\n        }\n        \
                  for _ in 0..DROP_ATTEMPTS {\n            if range.is_empty() || self.forget(&range)? {\n                \
                  return Ok(ReadsFrom::Storage);\n            }\n",
        suite: STEPS,
    },
    Mutation {
        name: "sync: a chunk's data, in the mover",
        guards: "a leaf that is proven and differs after a crash",
        file: RECEIVED_FILE_RS,
        find: "        if is_chunk || node.keeps_durable(spec.durable) {\n",
        replace: "        if node.keeps_durable(spec.durable) {\n",
        suite: CALLS,
    },
    Mutation {
        name: "sync: a chunk's data that nothing is proven of",
        guards: "a part that counts as arrived and is gone after a crash",
        file: RECEIVED_FILE_RS,
        find: "            counted.timed(Activity::Storage, || writer.sync_range(range))?;\n",
        replace: "",
        suite: DURABLE,
    },
    Mutation {
        name: "sync: a whole file's data where durability is asked for",
        guards: "a file that is complete and empty after a crash",
        file: RECEIVE_RS,
        find: "        durable: node.keeps_durable(spec.durable),\n",
        replace: "        durable: false,\n",
        suite: CALLS,
    },
    Mutation {
        name: "sync: ranges told as durable",
        guards: "a restart that trusts what a crash took",
        file: RECEIVED_FLOW_RS,
        find: "            let new = match durable {\n                false => settled_news(",
        replace: "            let new = match durable {\n                _ if true => progress.take_new(),\n                false => settled_news(",
        suite: DURABLE,
    },
    Mutation {
        name: "sync: a packed file's name where durability is asked for",
        guards: "a small file that is gone after a crash",
        file: PACK_RS,
        find: "            durable: unpacker.durable,\n",
        replace: "            durable: false,\n",
        suite: CALLS,
    },
    Mutation {
        name: "sync: a small file before it is named",
        guards: "a small file that is empty after a crash",
        file: UNNAMED_RS,
        find: "        steps::sync_all(file).or_fault(\"sync\", path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: the name of a small file",
        guards: "a small file that is gone after a crash",
        file: UNNAMED_RS,
        find: "            Ok(()) if attributes.durable => sync_dir(&dir).or_fault(\"sync directory\", path).map(|()| true),\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "verify: a small file is read back",
        guards: "a digest of what was received, not of what is stored",
        file: UNNAMED_RS,
        find: "            read_back(&stored_bytes(&file, data.len(), path)?)?;\n",
        replace: "            read_back(data)?;\n",
        suite: CALLS,
    },
    Mutation {
        name: "sync: holes that were made",
        guards: "old bytes that come back where a hole is proven",
        file: CHUNK_RS,
        find: "        file.writer.sync()?;\n",
        replace: "",
        suite: DURABLE,
    },
    Mutation {
        name: "sync: what is committed",
        guards: "a final name with a tail that was cut, or without its data",
        file: CHUNK_RS,
        find: "size: None, durable: true };",
        replace: "size: None, durable: false };",
        suite: CRASHES,
    },
    Mutation {
        name: "sync: a committed file with its attributes",
        guards: "a final name without its size or time",
        file: COMMIT_RS,
        find: "if changed { handle.sync_all() }",
        replace: "if changed { Ok(()) }",
        suite: STEPS,
    },
    Mutation {
        name: "sync: a committed file without",
        guards: "a final name without its data",
        file: COMMIT_RS,
        find: "else { handle.sync_data() };",
        replace: "else { Ok(()) };",
        suite: STEPS,
    },
    Mutation {
        name: "sync: the final name",
        guards: "a committed file that is gone",
        file: COMMIT_RS,
        find: "            sync_dir(&handle.dir).or_fault(\"sync directory\", path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: the final name when the rename is found done",
        guards: "a committed file that is gone, when the commit was repeated",
        file: COMMIT_RS,
        find: "            sync_dir(&dir).or_fault(\"sync directory\", path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: the name of a file written in place",
        guards: "a new file that is gone after its commit",
        file: COMMIT_RS,
        find: "                    sync_dir(&handle.dir).or_fault(\"sync directory\", &session.path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: a renamed file and its names where durability is asked for",
        guards: "a file that is gone after a crash, or bears another's name without its bytes",
        file: "crates/dtn/src/mover/worker.rs",
        find: "command::run(node.connector.as_ref(), op, node.settings.sync_writes) {",
        replace: "command::run(node.connector.as_ref(), op, false) {",
        suite: CALLS,
    },
    Mutation {
        name: "sync: the content of a file before it is renamed",
        guards: "a name that stood for something else, without bytes",
        file: "crates/connector/src/posix/renaming.rs",
        find: "        Ok(file) => steps::sync_data(&file),\n",
        replace: "        Ok(_) => Ok(()),\n",
        suite: STEPS,
    },
    Mutation {
        name: "mode: an unfinished file is made for its owner only",
        guards: "a private file that others open while it is written",
        file: BEGUN_RS,
        find: "openat(&place.dir, name, NEW, PRIVATE)",
        replace: "openat(&place.dir, name, NEW, Mode::from_raw_mode(0o666))",
        suite: STEPS,
    },
    Mutation {
        name: "mode: what an earlier release left is made private",
        guards: "a private file that others open while it is written",
        file: BEGUN_RS,
        find: "    make_private(&begun.file, &begun.stat).or_fault(OPEN, &begun.staging)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "mode: a store tells its mode",
        guards: "a private file that others open once it has its name",
        file: "crates/dtn/src/client/flight/orders.rs",
        find: "        mode: manner.given.mode_of(item),\n",
        replace: "",
        suite: CALLS,
    },
    // --- bytes that are kept until their piece is complete -----------------------------------
    Mutation {
        name: "pieces: a commit stores what is kept",
        guards: "a file that has its name, and not its last bytes",
        file: COMMIT_RS,
        find: "    handle.settle(&(0..u64::MAX)).or_fault(\"write\", path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "pieces: what is kept goes to no file that another has committed",
        guards: "a finished file that a late writer damages",
        file: WRITE_RS,
        find: "        let _writing = self.writing_late()?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "pieces: reading back sees what is kept",
        guards: "a proof of bytes that are still to be overwritten",
        file: WRITE_RS,
        find: "        self.settle(offset..offset + buffer.len() as u64)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "pieces: an operation is answered when nothing of it is kept",
        guards: "bytes that a restart counts on and that go with their process",
        file: RECEIVED_FLOW_RS,
        find: ".and(self.hand_over(spec, &transfer))",
        replace: "",
        suite: DURABLE,
    },
    // --- checks ------------------------------------------------------------------------------
    Mutation {
        name: "check: leaves of both ends",
        guards: "a wrong leaf that counts as right",
        file: COMPARE_RS,
        find: "eq_ignore_ascii_case(&stored.digest) {",
        replace: "eq_ignore_ascii_case(&stored.digest) || true {",
        suite: INTEGRITY,
    },
    Mutation {
        name: "vouching: a whole file is what its sender vouches for",
        guards: "a wrong file with its name, when the client is killed before it compares",
        file: RECEIVED_FILE_RS,
        find: "voucher::check(voucher, &leaves)\n",
        replace: "voucher::check(voucher, &leaves).or(Ok::<(), Problem>(()))\n",
        suite: VOUCHING,
    },
    Mutation {
        name: "vouching: a packed file is what its sender vouches for",
        guards: "a wrong small file with its name, when the client is killed before it compares",
        file: PACK_RS,
        find: ".filter(|expected| **expected != computed)",
        replace: ".filter(|_| false)",
        suite: VOUCHING,
    },
    Mutation {
        name: "vouching: not for a source that was changed",
        guards: "a mixture of two versions with a name",
        file: "crates/dtn/src/mover/send.rs",
        find: "let text = check().map(",
        replace: "let text = check().or(Ok::<(), Fault>(())).map(",
        suite: VOUCHING,
    },
    Mutation {
        name: "check: digests in the replies of a whole file",
        guards: "a wrong file that counts as right",
        file: PROOF_RS,
        find: "            if sent != stored {\n",
        replace: "            if sent.range != stored.range {\n",
        suite: CLIENT,
    },
    Mutation {
        name: "check: checksums asked for behind a whole file",
        guards: "a wrong file at a stock server that counts as right",
        file: PROOF_RS,
        find: "(Some(source), Some(destination)) if source == destination =>",
        replace: "(Some(_), Some(_)) =>",
        suite: INTEGRITY,
    },
    Mutation {
        name: "check: digests of packed files",
        guards: "a wrong small file that counts as right",
        file: "crates/dtn/src/client/worker/packs.rs",
        find: "(Some(sent), Some(stored)) if sent == stored =>",
        replace: "(Some(_), Some(_)) =>",
        suite: CLIENT,
    },
    Mutation {
        name: "check: leaves that an earlier run left at a stock server",
        guards: "bytes of another version that are trusted",
        file: COMPARE_RS,
        find: "stored.get(&leaf.range.start) == Some(leaf);",
        replace: "stored.contains_key(&leaf.range.start);",
        suite: INTEGRITY,
    },
    Mutation {
        name: "check: what is claimed beside an unfinished file at a stock server",
        guards: "bytes of another source that are trusted",
        file: "crates/dtn/src/client/flight/examination.rs",
        find: "is_some_and(|claim| claim.digest != digest)",
        replace: "is_some_and(|_| false)",
        suite: OTHERS,
    },
    Mutation {
        name: "check: the version of the source behind each chunk",
        guards: "a file made of two versions",
        file: FLIGHT_RS,
        find: "        if !(same_size && same_time) {\n",
        replace: "        if !(same_size || same_time) {\n",
        suite: RUNS,
    },
    Mutation {
        name: "check: the version of a packed file",
        guards: "a small file made of two versions",
        file: PACK_RS,
        find: "if reader.meta()?.version() == before.version() { Ok(()) }",
        replace: "if reader.meta()?.size == before.size { Ok(()) }",
        suite: VERSIONS,
    },
    Mutation {
        name: "check: the version of a file while it is sent",
        guards: "a file made of two versions",
        file: "crates/dtn/src/mover/send.rs",
        find: "    if before.kind != Kind::File || reader.meta()?.version() == before.version() {\n",
        replace: "    if before.kind != Kind::File || reader.meta()?.size == before.size {\n",
        suite: VERSIONS,
    },
    Mutation {
        name: "check: the journal's version of the source",
        guards: "leaves of another version that count as proven",
        file: OPENING_RS,
        find: "Some(header) if header == wanted =>",
        replace: "Some(header) if header.leaf == wanted.leaf =>",
        suite: CRASHES,
    },
    Mutation {
        name: "check: the journal covers the file before it is committed",
        guards: "an unproven file with its final name",
        file: CHUNK_RS,
        find: "                prove(&trusted, size, path)?;\n",
        replace: "",
        suite: CRASHES,
    },
    Mutation {
        name: "check: a leaf that is written again is proven again",
        guards: "bytes that a session wrote over what was proven, and proved by nobody",
        file: WRITING_RS,
        find: "journal.begin(writer, &leaves, alone)?",
        replace: "journal.begin(writer, &leaves[..0], alone)?",
        suite: CRASHES,
    },
    Mutation {
        name: "check: a session that was given up may still write",
        guards: "late bytes of a session in a leaf that another has proven",
        file: WRITING_RS,
        find: "let alone = !state.is_written(Some(writer), &leaves);",
        replace: "let alone = true;",
        suite: CRASHES,
    },
    Mutation {
        name: "check: what others have begun is read again before it is named",
        guards: "a file with its name and bytes that were written over what was proven",
        file: CHUNK_RS,
        find: "            if !again::is_there(file.writer.as_ref(), header, leaf, self.cancel)? {\n",
        replace: "            if false {\n",
        suite: CRASHES,
    },
    Mutation {
        name: "check: CRCs of the journal's records",
        guards: "a torn record that is trusted",
        file: RECORDS_RS,
        find: "    right.then_some((front[0], body, rest))",
        replace: "    (right || true).then_some((front[0], body, rest))",
        suite: JOURNAL,
    },
    Mutation {
        name: "check: records are leaves of the file",
        guards: "a range that is no leaf and counts as proven",
        file: READING_RS,
        find: "            LEAF if header.is_leaf(&range) && ",
        replace: "            LEAF if !range.is_empty() && ",
        suite: JOURNAL,
    },
    Mutation {
        name: "check: the checksum that was announced with a file",
        guards: "a file with its name that is not the expected one",
        file: RECEIVE_RS,
        find: "        verify(node, session, writer, expected, cancel)?;\n",
        replace: "",
        suite: INTEGRITY,
    },
    Mutation {
        name: "check: the checksum that was announced with a commit",
        guards: "a file in chunks with its name that is not the expected one",
        file: CHUNK_RS,
        find: "    if computed.eq_ignore_ascii_case(expected.trim()) {\n",
        replace: "    if !computed.is_empty() {\n",
        suite: PAST_MEMORY,
    },
    Mutation {
        name: "check: pages that memory was to forget are gone",
        guards: "memory that is reported as disk",
        file: WRITE_RS,
        find: "resident_pages(file.as_fd(), range.clone()).is_ok_and(|pages| pages == 0))",
        replace: "resident_pages(file.as_fd(), range.clone()).is_ok())",
        suite: INTEGRITY,
    },
    Mutation {
        name: "check: memory is asked to forget",
        guards: "what the disk has lost and memory still has",
        file: WRITE_RS,
        find: "        match fadvise(file, start, NonZeroU64::new(len), Advice::DontNeed) {\n",
        replace: "        match fadvise(file, start, NonZeroU64::new(len), Advice::Normal) {\n",
        suite: INTEGRITY,
    },
    Mutation {
        name: "check: the file is still the session's at its commit",
        guards: "the final name for somebody else's bytes",
        file: COMMIT_RS,
        find: "            Some(stat) if Identity::of(&stat) == token.identity => stat,\n            Some(_) =>",
        replace: "            Some(stat) if true => stat,\n            Some(_) =>",
        suite: STEPS,
    },
    Mutation {
        name: "check: what others go on with in chunks is not committed by its first writer",
        guards: "a name for a mixture of two files",
        file: COMMIT_RS,
        find: "        if is_others(token, &handle.dir, path, &stat).or_fault(\"commit\", path)? {\n",
        replace: "        if false {\n",
        suite: POSIX,
    },
    Mutation {
        name: "check: an unfinished file that is gone on with is one's own",
        guards: "bytes that go to a file somebody else has planted",
        file: BEGUN_RS,
        find: "    if !is_own(&begun.stat, caller) {\n",
        replace: "    if !is_own(&begun.stat, caller) && begun.staging.is_root() {\n",
        suite: POSIX,
    },
    Mutation {
        name: "check: a sync that has failed",
        guards: "lost bytes that another writer of the file is told are durable",
        file: "crates/connector/src/posix/handles.rs",
        find: "        if let Some(errno) = *failed {\n            return Err(errno);\n        }\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "sync: a file where a lost write is told late",
        guards: "a file with its name and without its bytes on a full or lost file server",
        file: WRITE_RS,
        find: "            self.sync()?;\n        }\n        Ok(Receipt",
        replace: "        }\n        Ok(Receipt",
        suite: STEPS,
    },
    Mutation {
        name: "sync: a small file where a lost write is told late",
        guards: "a file of a pack with its name and without its bytes on a full or lost file server",
        file: "crates/connector/src/posix/unnamed.rs",
        find: "    } else if dir.kind().is_some_and(magic::tells_late) {\n        steps::sync_data(file).or_fault(\"sync\", path)?;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "check: what was begun in a directory while it was made",
        guards: "an unfinished file of this process that a small one of the same name leaves behind",
        file: "crates/connector/src/posix/looked.rs",
        find: "let clean = seen && state.begun == begun;",
        replace: "let clean = seen && state.begun >= begun;",
        suite: STEPS,
    },
    Mutation {
        name: "check: a file whose bytes were lost when memory was to forget them",
        guards: "lost bytes that the next attempt is told are stored",
        file: RECEIVED_FILE_RS,
        find: "read_from.map_err(|fault| self.unless_lost(node, spec, fault))?;",
        replace: "read_from?;",
        suite: DURABLE,
    },
    Mutation {
        name: "check: a file that is gone on with has not its name yet",
        guards: "another run's whole file, written into",
        file: RECEIVED_FILE_RS,
        find: "            Ok(meta) if meta.kind == Kind::File => None,\n",
        replace: "            Ok(meta) if meta.kind == Kind::File => Some(meta.size),\n",
        suite: DURABLE,
    },
    Mutation {
        name: "check: what could not be looked at has been committed before",
        guards: "a name for a file that nobody has checked",
        file: CHUNK_RS,
        find: "if may_be && is_committed()? { Ok(()) }",
        replace: "if may_be { Ok(()) }",
        suite: DURABLE,
    },
    Mutation {
        name: "check: names of unfinished files are no final names",
        guards: "a file that is lost when the one is stored that its name speaks of",
        file: "crates/connector/src/staging.rs",
        find: "    if !path.name().is_some_and(is_hidden) {\n",
        replace: "    if true || !path.name().is_some_and(is_hidden) {\n",
        suite: suite(&["test", "-p", "whimbrel-connector", "--test", "contract_posix"], &[]),
    },
    Mutation {
        name: "check: a journal that was removed takes no appends",
        guards: "a proof that is answered as kept and is nowhere",
        file: JOURNAL_RS,
        find: ".or_fault(WRITE, &self.path)?.stx_nlink == 0 {",
        replace: ".or_fault(WRITE, &self.path)?.stx_nlink == u32::MAX {",
        suite: suite(&["test", "-p", "whimbrel-connector", "--test", "contract_posix"], &[]),
    },
    Mutation {
        name: "check: writers are refused after a commit",
        guards: "a finished file that a late writer changes",
        file: COMMIT_RS,
        find: "        *committed = true;\n",
        replace: "",
        suite: STEPS,
    },
    Mutation {
        name: "check: what came before a cut is compared before it is named",
        guards: "a wrong file with its name, where a client is killed behind a restart",
        file: "crates/dtn/src/client/worker/manner.rs",
        find: "pair.source.has(\"DCNONCE\") && job.received.is_empty();",
        replace: "pair.source.has(\"DCNONCE\");",
        suite: suite(&["test", "-p", "whimbrel", "--test", "restart"], &[]),
    },
    Mutation {
        name: "check: what is gone on with is looked at again once it is open",
        guards: "a whole file that is written into, or zeros where bytes were",
        file: RECEIVED_FILE_RS,
        find: "    is_there(connector, path, done, Some(&session))?;\n",
        replace: "",
        suite: DURABLE,
    },
    Mutation {
        name: "check: a leaf that two sources have proven is nobody's",
        guards: "a file that is a mixture of two",
        file: CHUNK_RS,
        find: "    if trusted.disputed {\n        return Err(disputed().into());\n    }\n    let missing",
        replace: "    let missing",
        suite: CHUNKS,
    },
    Mutation {
        name: "check: what two sources have proven is not gone on with",
        guards: "a file that can never be committed",
        file: OPENING_RS,
        find: "    if trusted.disputed {\n        return Ok(foreign(&trusted));\n    }\n",
        replace: "",
        suite: CHUNKS,
    },
    Mutation {
        name: "check: what is unfinished is cut by nobody",
        guards: "zeros that count as proven",
        file: "crates/connector/src/posix/mod.rs",
        find: "        refuse_hidden(&real, op)?;\n        let flags = OFlags::WRONLY",
        replace: "        let flags = OFlags::WRONLY",
        suite: CHUNKS,
    },
    Mutation {
        name: "check: a stream that is cut does not end like a whole one",
        guards: "a file that is too short and has its name",
        file: "crates/transport/src/secure/tls.rs",
        find: "        self.told_end = true;\n        self.handshake.stream.get_mut().inner.abort()\n",
        replace: "        self.shutdown()?;\n        self.handshake.stream.get_mut().inner.abort()\n",
        suite: suite(&["test", "-p", "whimbrel-transport", "--lib"], &["secure"]),
    },
    // --- orders ------------------------------------------------------------------------------
    Mutation {
        name: "order: a leaf is in the journal before it is answered as kept",
        guards: "a leaf that was kept and has to be sent again",
        file: CHUNK_RS,
        find: "        if !records.is_empty() {\n            self.append(&file, &records)?;\n        }\n",
        replace: "        drop(records);\n",
        suite: CHUNKS,
    },
    Mutation {
        name: "order: compared before renamed, at a stock server",
        guards: "a wrong file with its name",
        file: FLIGHT_RS,
        find: "            (Work::Copy, Err(_)) => false,\n",
        replace: "            (Work::Copy, Err(_)) => true,\n",
        suite: OTHERS,
    },
    Mutation {
        name: "order: synced before renamed",
        guards: "a final name without its data",
        file: COMMIT_RS,
        find: SYNCED_THEN_NAMED,
        replace: NAMED_THEN_SYNCED,
        suite: STEPS,
    },
    Mutation {
        name: "order: the journal goes after the name is durable",
        guards: "an unfinished file without its proofs, after a crash that undid the rename",
        file: COMMIT_RS,
        find: "        self.give_name(\"commit\", (&handle.dir, from), (&handle.dir, to), path)?;\n",
        replace: "        self.give_name(\"commit\", (&handle.dir, from), (&handle.dir, to), path)?;\n        \
                  journal::remove(&handle.dir, path, &token.identity).or_fault(\"remove journal\", path)?;\n",
        suite: STEPS,
    },
    Mutation {
        name: "order: the journal goes before the file, in a takeover",
        guards: "a journal without its file",
        file: BEGUN_RS,
        find: "            journal::remove(&place.dir, &place.path, &mine)?;\n            steps::unlink(&place.dir, name)\n",
        replace: "            steps::unlink(&place.dir, name)?;\n            journal::remove(&place.dir, &place.path, &mine)\n",
        suite: STEPS,
    },
    Mutation {
        name: "order: the journal goes before the file, when it is given up",
        guards: "a journal without its file",
        file: COMMIT_RS,
        find: "            self.remove_journal(session, &token)?;\n        }\n        let Some(handle) = &handle",
        replace: "        }\n        let Some(handle) = &handle",
        suite: STEPS,
    },
    Mutation {
        name: "order: all is proven before the client commits",
        guards: "a commit that is refused",
        file: "crates/engine/src/transfer/chunked.rs",
        find: "        self.verified.covers(0..self.size)\n",
        replace: "        self.verified.covers(0..self.leaf.min(self.size))\n",
        suite: ENGINE,
    },
    Mutation {
        name: "order: digests are compared before anything is kept",
        guards: "a wrong leaf in the journal",
        file: COMPARE_RS,
        find: "            result.wrong.insert(range);\n",
        replace: "            result.proven.push(stored.clone());\n",
        suite: CLIENT,
    },
];
