//! The public SDK, as a portal uses it: what it is told, and what is on the servers' disks then.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use serde_json::{Value, json};
use whimbrel_testkit::peers::Tool;

use crate::field::{Field, Person, peer};

/// What the program told, by its steps; of those that came several times the last.
struct Told(BTreeMap<String, Value>);

impl Told {
    /// Runs a scene of the program, as the administrator; `other` is somebody else in it.
    #[track_caller]
    fn by(field: &Field, scene: &str, other: Option<&Person>) -> Self {
        let python = peer("globus-cli", "python").expect("the public client is here");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/clients/sdk.py");
        let site = |site: &Option<crate::field::Site>| site.as_ref().map_or("", |site| &site.collection).to_owned();
        let mut tool = field.environment(Tool::new(python).arg(program).arg(scene));
        tool = tool.env("ALPHA", site(&field.alpha)).env("BETA", site(&field.beta));
        if let Some(other) = other {
            tool = tool.env("OTHER", &other.id).env("OTHER_SECRET", &other.secret);
        }
        let run = tool.run().expect("python runs");
        assert_eq!(run.code(), Some(0), "{}\n{}", run.stdout_text(), run.stderr_text());
        let read = |line: &str| {
            let told: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            (told["step"].as_str().expect("it has a name").to_owned(), told)
        };
        Self(run.stdout_text().lines().map(read).collect())
    }

    /// Expects a step to have told these things.
    #[track_caller]
    fn has(&self, step: &str, wanted: Value) {
        let told = self.0.get(step).unwrap_or_else(|| panic!("{step} is not in {:#?}", self.0));
        for (name, value) in wanted.as_object().expect("names with values") {
            assert_eq!(&told[name], value, "{name} of {told:#}");
        }
    }
}

fn refused(status: u16, code: &str) -> Value {
    json!(["TransferAPIError", status, code])
}

#[test]
fn a_portal_knows_who_it_is_and_gives_its_tokens_back() {
    let Some(field) = Field::alone() else { return };
    let told = Told::by(&field, "identity", None);
    let me = field.json(&["whoami"])["sub"].clone();
    let transfers = "urn:globus:auth:scope:transfer.api.globus.org:all";
    let servers = json!(["auth.globus.org", "transfer.api.globus.org"]);
    told.has("introspect", json!({"servers": servers, "active": true, "scope": transfers, "sub": me}));
    told.has("who", json!({"sub": me, "known": [me], "by_token": [me]}));
    told.has("revoke", json!({"before": [], "active": false, "refused": refused(401, "AuthenticationFailed")}));
    told.has("wrong", json!({"refused": ["AuthAPIError", 401, null]}));
    told.has("unknown", json!({"refused": ["AuthAPIError", 401, null]}));
}

#[test]
fn a_portal_finds_collections_and_works_with_files_one_by_one() {
    let Some(field) = Field::new() else { return };
    let alpha = field.alpha();
    for (path, content) in [("dir/a.txt", "12345"), ("dir/b.txt", "b"), ("dir/.hidden", ""), ("dir/sub/deep", "")] {
        alpha.write(path, content);
    }
    let told = Told::by(&field, "files", None);
    let shown = json!({"id": alpha.collection, "display_name": "alpha data", "entity_type": "GCSv5_mapped_collection"});
    told.has("endpoint", shown);
    told.has("search", json!({"pages": [100, 1], "found": 101, "one_page": [7, 3, 7, true]}));
    told.has("guests", json!({"count": 101, "different": 101}));
    told.has("ls", json!({"path": "/dir/", "names": ["sub", "b.txt", "a.txt"]}));
    told.has("chosen", json!({"names": [["a.txt"], ["b.txt", "sub"], ["b.txt", "sub"]], "total": 3}));
    told.has("stat", json!({"name": "a.txt", "type": "file", "size": 5}));
    told.has("changed", json!({"codes": ["DirectoryCreated", "FileRenamed"]}));
    let answers = json!([
        refused(404, "ClientError.NotFound"),
        refused(404, "NotFound"),
        refused(502, "ExternalError.MkdirFailed.Exists"),
        refused(404, "ClientError.NotFound"),
        refused(502, "ExternalError.RenameFailed.Exists"),
        refused(404, "EndpointNotFound"),
        refused(404, "TaskNotFound"),
        refused(404, "BookmarkNotFound"),
        refused(400, "ClientError.BadRequest.NoTransferItems"),
        refused(409, "NotSupported"),
    ]);
    told.has("refused", json!({"answers": answers}));
    told.has("stranger", json!({"refused": refused(401, "AuthenticationFailed")}));
    assert!(alpha.path("dir/new").is_dir() && !alpha.path("dir/b.txt").exists());
    assert_eq!((alpha.read("dir/new/c.txt"), alpha.read("dir/a.txt")), (b"b".to_vec(), b"12345".to_vec()));
}

#[test]
fn a_portal_copies_and_deletes_with_every_option() {
    let Some(field) = Field::new() else { return };
    let (alpha, beta) = (field.alpha(), field.beta());
    for (path, content) in
        [("one", "hello"), ("tree/t", "t"), ("tree/x.tmp", "x"), ("tree/keep.tmp", "k"), ("tree/skip/s", "s")]
    {
        alpha.write(path, content);
    }
    alpha.write("tree/sub/u", vec![7; 300_000]);
    alpha.write("links/file", "");
    symlink("elsewhere", alpha.path("links/link")).unwrap();
    for site in [alpha, beta] {
        site.write("same/f", "same");
    }
    for path in ["same/extra", "old1", "old2/x", "waste/deep/x", "kept"] {
        beta.write(path, "x");
    }
    let told = Told::by(&field, "copies", None);

    told.has("submitted", json!({"codes": ["Accepted", "Duplicate"], "same": true}));
    let copied = json!({"status": "SUCCEEDED", "label": "a portal's", "files": 4, "directories": 2, "bytes_transferred": 300_007,
                        "encrypt_data": true, "preserve_timestamp": true, "faults": 0});
    told.has("copied", copied);
    let paths = json!([
        ["/one", "/in/one", 5],
        ["/tree/keep.tmp", "/in/tree/keep.tmp", 1],
        ["/tree/sub/u", "/in/tree/sub/u", 300_000],
        ["/tree/t", "/in/tree/t", 1]
    ]);
    told.has("successful", json!({"paths": paths}));
    assert_eq!((beta.read("in/one"), beta.read("in/tree/sub/u")), (b"hello".to_vec(), vec![7; 300_000]));
    assert!(beta.path("in/tree/keep.tmp").exists() && !beta.path("in/tree/x.tmp").exists());
    assert!(!beta.path("in/tree/skip").exists());
    let time = |path: &Path| path.metadata().unwrap().mtime();
    assert_eq!(time(&beta.path("in/tree/t")), time(&alpha.path("tree/t")));

    for (step, level) in [("synced exists", 0), ("synced size", 1), ("synced mtime", 2), ("synced checksum", 3)] {
        let synced = json!({"status": "SUCCEEDED", "sync_level": level, "files_skipped": 1, "files_transferred": 0});
        told.has(step, synced);
    }
    told.has("mirrored", json!({"status": "SUCCEEDED", "delete_destination_extra": true}));
    assert!(!beta.path("same/extra").exists() && beta.read("same/f") == b"same");

    let skipped =
        json!({"status": "SUCCEEDED", "subtasks_skipped_errors": 1, "errors": [["/missing", "FILE_NOT_FOUND"]]});
    told.has("skipped", skipped);
    assert!(beta.read("second") == b"hello" && !beta.path("missing").exists());
    told.has("mismatch", json!({"status": "FAILED", "code": "EXTERNAL_CHECKSUM_MISMATCH"}));
    assert!(!beta.path("third").exists());
    told.has("links", json!({"status": "SUCCEEDED", "symlinks": 1, "recursive_symlinks": "keep"}));
    assert_eq!(std::fs::read_link(beta.path("links/link")).unwrap(), std::path::Path::new("elsewhere"));

    let deleted = json!({"status": "SUCCEEDED", "type": "DELETE", "label": "gone", "destination_endpoint_id": null});
    told.has("deleted", deleted);
    let left = |path: &&str| beta.path(path).exists();
    assert_eq!(["old1", "old2", "waste", "kept"].iter().filter(|path| left(path)).collect::<Vec<_>>(), [&"kept"]);
    told.has("ignored", json!({"status": "SUCCEEDED"}));
    told.has("missing", json!({"code": "FILE_NOT_FOUND"}));
}

#[test]
fn a_portal_looks_after_its_tasks() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("one", "hello");
    let told = Told::by(&field, "tasks", None);
    let waits =
        json!({"ended": false, "paused": true, "why": ["New disks"], "rules": [true], "effective": ["New disks"]});
    told.has("waits", waits);
    told.has("conflict", json!({"refused": refused(409, "Conflict")}));
    told.has("updated", json!({"label": "second", "is_later": true}));
    told.has("manager", json!({"watched": [true, true], "managed": true, "message": "New disks"}));
    let late = refused(409, "Conflict");
    let cancelled =
        json!({"code": "Canceled", "again": "TaskComplete", "status": "FAILED", "fatal": "CANCELED", "late": late});
    told.has("cancelled", cancelled);
    told.has("pause", json!({"why": ["Newer disks"]}));
    told.has("resumed", json!({"status": "SUCCEEDED"}));
    assert!(field.beta().read("one") == b"hello" && !field.beta().path("other").exists());
    let every: Vec<_> = (0..5).map(|number| format!("number {number}")).collect();
    let listed = json!({"every": every, "page": ["number 3", "number 4"], "total": 5, "failed": [true],
                        "named": ["number 4", "number 3"], "little": ["DATA_TYPE", "status", "task_id"]});
    told.has("listed", listed);
}

#[test]
fn a_portal_shares_with_people_and_groups() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("team/in/a", "a");
    field.alpha().write("team/b", "b");
    let other = field.person("other");
    let told = Told::by(&field, "sharing", Some(&other));
    let bookmark = json!({"name": "marked", "path": "/team/", "endpoint_id": field.alpha().collection, "listed": ["marked"],
                          "deleted": "Deleted", "left": 0, "gone": refused(404, "BookmarkNotFound")});
    told.has("bookmark", bookmark);
    told.has("guest", json!({"description": "of a portal"}));
    let (denied, hidden) = (refused(403, "PermissionDenied"), refused(404, "EndpointNotFound"));
    let rule =
        json!({"path": "/in/", "permissions": "rw", "rules": [[true, "/in/", "rw"]], "twice": refused(409, "Exists")});
    told.has("rule", rule);
    told.has("theirs", json!({"names": ["a", "theirs"], "outside": denied, "rights": denied}));
    assert!(field.alpha().path("team/in/theirs").is_dir());
    told.has("taken back", json!({"refused": hidden}));
    told.has("role", json!({"shown": ["access_manager", "access_manager"], "managed": true, "after": hidden}));
    told.has("group", json!({"theirs": ["crew"], "seen": ["b", "in"], "after": hidden}));
    told.has("deleted", json!({"code": "Deleted", "left": 0, "gone": refused(404, "EndpointDeleted")}));
    assert_eq!(field.alpha().read("team/in/a"), b"a", "files stay");
}

#[test]
fn a_portal_has_timers() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("box/b", "boxed");
    let told = Told::by(&field, "timers", None);
    told.has("made", json!({"name": "now", "timer_type": "transfer", "status": "active"}));
    let later = json!({"paused": "user", "name": "much later", "status": "active", "interval": 3600, "listed": ["much later", "now"]});
    told.has("later", later);
    told.has("gone", json!({"refused": ["TimersAPIError", 404, "TimerNotFound"]}));
    told.has("ran", json!({"status": "SUCCEEDED", "label": "now, run 1"}));
    assert_eq!(field.beta().read("box/b"), b"boxed");
}
