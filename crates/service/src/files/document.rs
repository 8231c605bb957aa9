//! Files and listings as the API's documents show them (Transfer API 0.10, `file` and `file_list`).

use serde_json::{Value, json};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Entry, EntryKind};

use crate::clock::iso_of_file;

/// Most entries of one listing.
pub const MOST_ENTRIES: u32 = 100_000;

/// A `file` document.
pub fn file(entry: &Entry) -> Value {
    let time = entry.modified.map(iso_of_file);
    let is_link = entry.link_target.is_some();
    json!({
        "DATA_TYPE": "file",
        "name": String::from_utf8_lossy(&entry.name),
        "type": kind(entry.kind),
        "size": entry.size,
        "permissions": entry.mode.map(permissions),
        "user": entry.user,
        "group": entry.group,
        "last_modified": time,
        "link_target": entry.link_target.as_deref().map(String::from_utf8_lossy),
        "link_size": is_link.then_some(entry.size),
        "link_user": entry.user.as_ref().filter(|_| is_link),
        "link_group": entry.group.as_ref().filter(|_| is_link),
        "link_last_modified": time.as_ref().filter(|_| is_link),
    })
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "dir",
        EntryKind::DanglingLink => "invalid_symlink",
        EntryKind::Other => "other",
    }
}

/// `0644`.
fn permissions(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

/// A `file_list` document of entries that were filtered and ordered already; `path` is normal.
pub fn file_list(collection: Uuid, path: &str, entries: Vec<Value>, total: usize) -> Value {
    let path = if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
    json!({
        "DATA_TYPE": "file_list",
        "endpoint": collection,
        "path": path,
        "absolute_path": path,
        "rename_supported": true,
        "symlink_supported": true,
        "length": entries.len(),
        "total": total,
        "DATA": entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_engine::listing::Timestamp;

    #[test]
    fn a_file_is_shown_as_clients_expect_it() {
        let entry = Entry {
            name: b"a\xff".to_vec(),
            kind: EntryKind::File,
            size: 5,
            mode: Some(0o100_644),
            user: Some("ada".into()),
            group: None,
            modified: Some(Timestamp::from_secs(1_767_323_045)),
            link_target: None,
        };
        let shown = file(&entry);
        assert_eq!(shown["name"], "a\u{fffd}");
        assert_eq!((&shown["type"], &shown["permissions"]), (&json!("file"), &json!("0644")));
        assert_eq!(shown["last_modified"], "2026-01-02 03:04:05+00:00");
        assert!(shown["link_target"].is_null() && shown["link_size"].is_null());
        let link = Entry { link_target: Some(b"x".to_vec()), kind: EntryKind::DanglingLink, ..entry };
        assert_eq!((&file(&link)["type"], &file(&link)["link_target"]), (&json!("invalid_symlink"), &json!("x")));
        let list = file_list(Uuid::nil(), "/d", vec![shown], 7);
        assert_eq!((&list["path"], &list["length"], &list["total"]), (&json!("/d/"), &json!(1), &json!(7)));
    }
}
