//! Files of collections over HTTPS, as curl and `globusfs` have them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use whimbrel_testkit::peers::{Run, Tool};

use super::field::{Field, Site, peer};

/// What a server answered.
struct Got {
    status: u16,
    /// Its fields as they came, lines of `name: value`.
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut named = lines.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.next_back().map(|(_, value)| value.trim())
    }

    #[track_caller]
    fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.head, String::from_utf8_lossy(&self.body));
        self
    }
}

/// A collection's files over HTTPS.
struct Files<'a> {
    field: &'a Field,
    base: String,
    token: String,
}

impl<'a> Files<'a> {
    #[track_caller]
    fn of(field: &'a Field, site: &Site) -> Self {
        let shown = field.json(&["api", "transfer", "GET", &format!("/endpoint/{}", site.collection)]);
        let base = shown["https_server"].as_str().unwrap_or_else(|| panic!("{shown:#}")).to_owned();
        assert_eq!(shown["gcs_manager_url"], json!(base.strip_suffix(&format!("/{}", site.collection)).unwrap()));
        let token = field.token_for(&format!("https://auth.globus.org/scopes/{}/https", site.collection));
        Self { field, base, token }
    }

    #[track_caller]
    fn curl(&self, arguments: &[&str], path: &str) -> Got {
        self.with_token(&self.token, arguments, path)
    }

    #[track_caller]
    fn with_token(&self, token: &str, arguments: &[&str], path: &str) -> Got {
        let run = self.run(token, arguments, path);
        assert_eq!(run.code(), Some(0), "{}", run.stderr_text());
        got(&self.field.place("head"), run)
    }

    #[track_caller]
    fn run(&self, token: &str, arguments: &[&str], path: &str) -> Run {
        let mut tool = Tool::new("curl").args(["-sS", "--path-as-is", "--cacert"]).arg(self.field.authorities());
        tool = tool.arg("-D").arg(self.field.place("head")).args(arguments);
        if !token.is_empty() {
            tool = tool.args(["-H", &format!("Authorization: Bearer {token}")]);
        }
        tool.arg(format!("{}{path}", self.base)).run().expect("curl runs")
    }
}

fn got(head: &PathBuf, run: Run) -> Got {
    let head = fs::read_to_string(head).unwrap();
    let last = head.rfind("HTTP/1.1 ").expect("there is a head");
    let status = head[last + 9..last + 12].parse().unwrap();
    Got { status, head: head[last..].to_owned(), body: run.stdout }
}

#[test]
fn files_are_read_whole_and_in_parts() {
    let Some(field) = Field::new() else { return };
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7 % 251) as u8).collect();
    field.alpha().write("dir/na me%é.bin", &content);
    field.alpha().write("empty", "");
    let files = Files::of(&field, field.alpha());
    let path = "/dir/na%20me%25%C3%A9.bin";

    let whole = files.curl(&[], path).is(200);
    assert!(whole.body == content && whole.field("accept-ranges") == Some("bytes"));
    let part = files.curl(&["-r", "10-13"], path).is(206);
    assert_eq!((part.body.as_slice(), part.field("content-range")), (&content[10..14], Some("bytes 10-13/3000000")));
    assert!(files.curl(&["-r", "2999990-"], path).is(206).body == content[2_999_990..]);
    assert!(files.curl(&["-r", "-8"], path).is(206).body == content[2_999_992..]);
    assert_eq!(files.curl(&["-r", "3000000-"], path).is(416).field("content-range"), Some("bytes */3000000"));
    let head = files.curl(&["-I"], path).is(200);
    assert_eq!((head.field("content-length"), head.field("etag")), (Some("3000000"), whole.field("etag")));
    let tag = format!("If-None-Match: {}", whole.field("etag").unwrap());
    assert!(files.curl(&["-H", &tag], path).is(304).body.is_empty());
    assert!(files.curl(&["-r", "0-0", "-H", "If-Range: \"another\""], path).is(200).body == content);
    assert!(files.curl(&[], "/empty").is(200).body.is_empty());
    let download = files.curl(&[], &format!("{path}?download")).is(200);
    assert_eq!(download.field("content-disposition"), Some("attachment; filename*=UTF-8''na%20me%25%C3%A9.bin"));

    files.curl(&[], "/dir").is(409);
    let missing = files.curl(&[], "/dir/nothing-here").is(404);
    let document: Value = serde_json::from_slice(&missing.body).unwrap();
    assert_eq!(document["code"], "NotFound");
    for out in ["/../etc/passwd", "/dir/%2e%2e/%2e%2e/etc/passwd", "/a%00b", "/%ff"] {
        let refused = files.curl(&[], out);
        assert!(refused.status == 400 || refused.status == 404, "{out}: {}", refused.head);
    }
}

#[test]
fn files_are_stored_whole_or_not_at_all() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("in/old", "old");
    fs::set_permissions(field.alpha().path("in/old"), Permissions::from_mode(0o666)).unwrap();
    field.alpha().write("in/locked", "locked");
    fs::set_permissions(field.alpha().path("in/locked"), Permissions::from_mode(0o444)).unwrap();
    let files = Files::of(&field, field.alpha());
    let content: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 253) as u8).collect();
    let local = field.place("local");
    fs::write(&local, &content).unwrap();
    let local = local.to_str().unwrap();

    files.curl(&["-T", local], "/in/new").is(201);
    assert!(field.alpha().read("in/new") == content);
    files.curl(&["-T", local], "/in/old").is(204);
    assert!(field.alpha().read("in/old") == content);
    // Of unknown length.
    files.curl(&["-T", local, "-H", "Transfer-Encoding: chunked"], "/in/chunked").is(201);
    assert!(field.alpha().read("in/chunked") == content);
    files.curl(&["-X", "PUT", "--data-binary", ""], "/in/empty").is(201);
    assert!(field.alpha().read("in/empty").is_empty());
    files.curl(&["-T", local, "-H", "If-None-Match: *"], "/in/empty").is(412);
    files.curl(&["-T", local, "-H", "Content-Range: bytes 0-9/10"], "/in/part").is(400);
    files.curl(&["-T", local], "/nowhere/file").is(404);
    // Data are handled as an account without rights, or the test runs as one.
    files.curl(&["-T", local], "/in/locked").is(403);
    assert_eq!(field.alpha().read("in/locked"), b"locked");
    files.curl(&["-T", local], "/in").is(409);

    // Who stops in the middle leaves nothing, and what was there before stays.
    let stopped = ["-T", local, "-H", "Content-Length: 6000000", "-m", "2", "--limit-rate", "1000000"];
    for name in ["/in/half", "/in/empty"] {
        assert_ne!(files.run(&files.token, &stopped, name).code(), Some(0));
    }
    files.curl(&["-I"], "/in/half").is(404);
    let left: std::collections::BTreeSet<_> = fs::read_dir(field.alpha().path("in"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    assert_eq!(left.into_iter().collect::<Vec<_>>(), ["chunked", "empty", "locked", "new", "old"]);
    assert!(field.alpha().read("in/empty").is_empty());

    files.curl(&["-X", "DELETE"], "/in/new").is(204);
    assert!(!field.alpha().path("in/new").exists());
    files.curl(&["-X", "DELETE"], "/in/new").is(404);
    files.curl(&["-X", "DELETE"], "/in").is(409);
    assert!(field.alpha().path("in/old").exists());
    files.curl(&["-X", "PROPFIND"], "/in").is(405);
}

/// A token for something else, or of somebody without rights, opens nothing.
#[test]
fn files_are_for_those_who_may_have_them() {
    let Some(field) = Field::new() else { return };
    field.alpha().write("shared/open", "open");
    field.alpha().write("secret", "secret");
    let files = Files::of(&field, field.alpha());
    let beta = Files::of(&field, field.beta());

    let unknown = files.with_token("", &[], "/secret").is(401);
    let location = unknown.field("location").unwrap_or_default();
    assert!(location.contains(&format!("client_id={}", field.alpha().collection)), "{location}");
    assert_eq!(unknown.field("www-authenticate"), Some("Bearer"));
    files.with_token("rubbish", &[], "/secret").is(401);
    files.with_token(&beta.token, &[], "/secret").is(403);
    files.with_token(&field.token_for("urn:globus:auth:scope:transfer.api.globus.org:all"), &[], "/secret").is(403);
    // Another endpoint's server does not serve it, whatever is shown.
    let elsewhere = Files { base: beta.base.replace(&field.beta().collection, &field.alpha().collection), ..beta };
    elsewhere.with_token(&files.token, &[], "/secret").is(404);

    let wish = json!({"host_endpoint": field.alpha().collection, "host_path": "/shared/", "display_name": "shared"});
    let guest = field.ask("/v0.10/shared_endpoint", &wish);
    let guest = guest["id"].as_str().unwrap_or_else(|| panic!("{guest}")).to_owned();
    let shared = Files { base: files.base.replace(&field.alpha().collection, &guest), token: String::new(), ..files };
    shared.curl(&[], "/open").is(401);
    field.globus(&["endpoint", "permission", "create", "--anonymous", "--permissions", "r", &format!("{guest}:/")]);
    assert_eq!(shared.curl(&[], "/open").is(200).body, b"open");
    shared.curl(&["-X", "PUT", "--data-binary", "x"], "/open").is(401);
    assert_eq!(field.alpha().read("shared/open"), b"open");
    shared.curl(&[], "/../secret").is(400);
}

const PROGRAM: &str = r#"
import json, ssl, sys
import globus_sdk
from globusfs import GlobusFileSystem
from globusfs.credentials import AppCredentials
from globusfs.transfer import TransferMetadata
import os

collection, bundle = sys.argv[1], os.environ["GLOBUS_SDK_VERIFY_SSL"]
config = globus_sdk.GlobusAppConfig(token_storage="memory")
app = globus_sdk.ClientApp("test", client_id=os.environ["GLOBUS_CLI_CLIENT_ID"],
                           client_secret=os.environ["GLOBUS_CLI_CLIENT_SECRET"], config=config)
scopes = globus_sdk.scopes.GCSCollectionScopes(collection)
app.add_scope_requirements({collection: [scopes.https]})
client = globus_sdk.TransferClient(app=app)
context = ssl.create_default_context(cafile=bundle)
fs = GlobusFileSystem(collection, credentials=AppCredentials(app), metadata=TransferMetadata(client),
                      ssl=context, skip_instance_cache=True)
fs.pipe_file("dir/made", b"made by globusfs")
told = {
    "listed": sorted(entry["name"].rsplit("/", 1)[-1] for entry in fs.ls("dir")),
    "whole": fs.cat_file("dir/file").decode(),
    "part": fs.cat_file("dir/file", start=2, end=5).decode(),
    "size": fs.info("dir/file")["size"],
    "there": [fs.exists("dir/file"), fs.exists("dir/missing"), fs.isdir("dir")],
}
with fs.open("dir/file", "rb") as file:
    file.seek(-4, 2)
    told["tail"] = file.read().decode()
try:
    fs.cat_file("dir/missing")
except FileNotFoundError:
    told["missing"] = "FileNotFoundError"
fs.rm_file("dir/gone")

from globus_sdk.experimental.gcs_downloader import GCSDownloader
url = client.get_endpoint(collection)["https_server"] + "/dir/file"
with GCSDownloader(app) as downloader:
    told["downloaded"] = downloader.read_file(url)
print(json.dumps(told))
"#;

#[test]
fn the_public_file_system_reads_and_writes() {
    let Some(field) = Field::new() else { return };
    let Some(python) = peer("globusfs", "python") else { return };
    let alpha = field.alpha();
    alpha.write("dir/file", "0123456789");
    alpha.write("dir/gone", "x");
    let tool = field.environment(Tool::new(python).args(["-c", PROGRAM, &alpha.collection]));
    let run = tool.run().expect("python runs");
    assert_eq!(run.code(), Some(0), "{}\n{}", run.stdout_text(), run.stderr_text());
    let told: Value = serde_json::from_str(run.stdout_text().lines().last().unwrap()).unwrap();
    let wanted = json!({
        "listed": ["file", "gone", "made"], "whole": "0123456789", "part": "234", "size": 10, "there": [true, false, true],
        "tail": "6789", "missing": "FileNotFoundError", "downloaded": "0123456789",
    });
    assert_eq!(told, wanted);
    assert_eq!(alpha.read("dir/made"), b"made by globusfs");
    assert!(!alpha.path("dir/gone").exists());
}
