//! One long script of the public client's commands, as a laboratory's people give them; each with its effect on the servers' disks
//! or as a second look shows it. At its end the commands are counted.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Value, json};
use whimbrel_testkit::peers::Tool;

use super::clients::browser::{ANNA, Anna};
use super::field::{Field, ended, peer};

/// What issue and manual promise to work, by the client's own names.
const PROMISED: &[&str] = &[
    "api auth",
    "api groups",
    "api timers",
    "api transfer",
    "bookmark create",
    "bookmark delete",
    "bookmark list",
    "bookmark rename",
    "bookmark show",
    "delete",
    "endpoint my-shared-endpoint-list",
    "endpoint permission create",
    "endpoint permission delete",
    "endpoint permission list",
    "endpoint permission show",
    "endpoint permission update",
    "endpoint role create",
    "endpoint role delete",
    "endpoint role list",
    "endpoint role show",
    "endpoint search",
    "endpoint show",
    "gcs collection create guest",
    "gcs collection create mapped",
    "gcs collection delete",
    "gcs collection list",
    "gcs collection show",
    "gcs collection update",
    "gcs endpoint role list",
    "gcs endpoint show",
    "gcs endpoint update",
    "gcs storage-gateway list",
    "get-identities",
    "group create",
    "group list",
    "group member add",
    "group member list",
    "group show",
    "login",
    "logout",
    "ls",
    "mkdir",
    "rename",
    "rm",
    "session show",
    "stat",
    "task cancel",
    "task event-list",
    "task generate-submission-id",
    "task list",
    "task pause-info",
    "task show",
    "task update",
    "task wait",
    "timer create transfer",
    "timer delete",
    "timer list",
    "timer pause",
    "timer resume",
    "timer show",
    "transfer",
    "whoami",
];

/// The script, with what was given so far.
struct Tour<'a> {
    field: &'a Field,
    given: RefCell<Vec<Vec<String>>>,
}

impl Tour<'_> {
    fn note(&self, arguments: &[&str]) {
        self.given.borrow_mut().push(arguments.iter().map(|&argument| argument.to_owned()).collect());
    }

    /// What a command prints.
    #[track_caller]
    fn says(&self, arguments: &[&str]) -> String {
        self.note(arguments);
        self.field.globus(arguments)
    }

    /// The JSON that a command prints.
    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        self.note(arguments);
        self.field.json(arguments)
    }

    /// What a command complains of.
    #[track_caller]
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        self.note(arguments);
        self.field.globus_ends(code, arguments).1
    }

    /// An id in what a command prints.
    #[track_caller]
    fn id(&self, name: &str, arguments: &[&str]) -> String {
        let made = self.json(arguments);
        let made = if made["data"].is_array() { &made["data"][0] } else { &made };
        made[name].as_str().unwrap_or_else(|| panic!("{made:#}")).to_owned()
    }

    /// Submits, waits, and expects success.
    #[track_caller]
    fn done(&self, arguments: &[&str]) -> Value {
        let task = self.id("task_id", arguments);
        self.says(&["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
        let shown = self.json(&["task", "show", &task]);
        assert_eq!(shown["status"], "SUCCEEDED", "{arguments:?}: {shown:#}");
        shown
    }
}

#[test]
fn sixty_commands_do_what_they_say() {
    let Some(field) = Field::new() else { return };
    let tour = Tour { field: &field, given: RefCell::default() };
    people(&tour);
    collections(&tour);
    files(&tour);
    transfers(&tour);
    options(&tour);
    tasks(&tour);
    deletions(&tour);
    bookmarks(&tour);
    permissions(&tour);
    timers(&tour);

    let known = names(&field.globus(&["list-commands"]));
    let given = tour.given.take();
    let name = |arguments: &Vec<String>| {
        let candidates = (1..=arguments.len()).rev().map(|length| arguments[..length].join(" "));
        candidates
            .into_iter()
            .find(|name| known.contains(name))
            .unwrap_or_else(|| panic!("{arguments:?} is no command"))
    };
    let commands: BTreeSet<_> = given.iter().map(name).collect();
    let missing: Vec<_> = PROMISED.iter().filter(|&&name| !commands.contains(name)).collect();
    assert!(missing.is_empty(), "nobody gave {missing:?}");
    let different: BTreeSet<_> = given.iter().collect();
    assert!(commands.len() >= 60 && different.len() >= 100, "{} of {}: {commands:#?}", commands.len(), different.len());
}

/// The commands that the client itself lists.
fn names(listed: &str) -> BTreeSet<String> {
    listed.lines().filter_map(|line| line.strip_prefix("    globus ")).map(str::to_owned).collect()
}

fn people(tour: &Tour<'_>) {
    let field = tour.field;
    let me = tour.id("sub", &["whoami"]);
    assert!(tour.says(&["whoami"]).contains(&format!("{me}@clients.")));
    assert!(tour.fails(2, &["login"]).contains("do not run 'globus login'"), "clients are always logged in");
    assert_eq!(tour.json(&["get-identities", &me])["identities"][0]["id"], me.as_str());
    assert!(tour.says(&["get-identities", "nobody@example.org"]).contains("NO_SUCH_IDENTITY"));
    assert_eq!(tour.json(&["api", "auth", "GET", "/v2/oauth2/userinfo"])["sub"], me.as_str());

    let globus = peer("globus-cli", "globus").expect("the field has it");
    let anna = Anna::new(field);
    let hers = |code: i32, arguments: &[&str]| {
        tour.note(arguments);
        ended(code, arguments, anna.tool(Tool::new(&globus).args(arguments)))
    };
    assert!(hers(4, &["ls", &field.alpha().at("/")]).1.contains("globus login"), "nobody is logged in");
    tour.note(&["login", "--no-local-server"]);
    assert!(anna.log_in(&globus, &["login", "--no-local-server"]).contains("You have successfully logged in"));
    assert_eq!(hers(0, &["whoami"]).0.trim(), ANNA);
    assert!(hers(0, &["session", "show"]).0.contains(ANNA));
    field.alpha().write("hello", "");
    assert_eq!(hers(0, &["ls", &field.alpha().at("/")]).0, "hello\n");
    assert!(tour.says(&["get-identities", ANNA]).contains(&anna.id));
    hers(0, &["logout", "--yes"]);
    assert!(hers(4, &["whoami"]).1.contains("globus login"));
}

fn collections(tour: &Tour<'_>) {
    let alpha = tour.field.alpha();
    alpha.write("part/inside/file", "1");
    let (endpoint, collection) = (alpha.endpoint.as_str(), alpha.collection.as_str());
    assert!(tour.says(&["endpoint", "search", "alpha data"]).contains(collection));
    let own = tour.json(&["endpoint", "search", "--filter-scope", "my-endpoints"]);
    assert!(own["DATA"].as_array().unwrap().len() >= 4, "{own:#}");
    assert!(tour.says(&["endpoint", "show", endpoint]).contains("alpha endpoint"));
    assert!(tour.fails(3, &["endpoint", "show", collection]).contains("collection"));
    assert!(tour.says(&["gcs", "endpoint", "show", endpoint]).contains("alpha endpoint"));
    tour.says(&["gcs", "endpoint", "update", endpoint, "--organization", "Laboratory"]);
    assert_eq!(tour.json(&["endpoint", "show", endpoint])["organization"], "Laboratory");
    assert!(tour.says(&["gcs", "endpoint", "role", "list", endpoint]).contains("owner"));

    assert!(tour.says(&["gcs", "storage-gateway", "list", endpoint]).contains("Storage of alpha endpoint"));
    let mapped = ["gcs", "collection", "create", "mapped", endpoint, "a part", "--base-path", "/part/"];
    let mapped = tour.id("id", &mapped);
    assert_eq!(tour.says(&["ls", &format!("{mapped}:/")]), "inside/\n");
    tour.says(&["gcs", "collection", "update", &mapped, "--allow-guest-collections"]);
    let guest = tour.id("id", &["gcs", "collection", "create", "guest", &mapped, "/inside/", "a guest"]);
    assert_eq!(tour.says(&["ls", &format!("{guest}:/")]), "file\n");
    tour.says(&["gcs", "collection", "update", &mapped, "--description", "of the laboratory"]);
    assert!(tour.says(&["gcs", "collection", "show", &mapped]).contains("of the laboratory"));
    assert!(tour.says(&["gcs", "collection", "list", endpoint]).contains("a part"));
    tour.says(&["gcs", "collection", "delete", &guest]);
    tour.says(&["gcs", "collection", "delete", &mapped]);
    assert!(!tour.says(&["gcs", "collection", "list", endpoint]).contains("a part"));
    assert_eq!(alpha.read("part/inside/file"), b"1", "files stay");
}

fn files(tour: &Tour<'_>) {
    let alpha = tour.field.alpha();
    for (path, content) in [("dir/a.txt", "12345"), ("dir/b.dat", "1"), ("dir/sub/deep", ""), ("dir/.hidden", "")] {
        alpha.write(path, content);
    }
    let place = alpha.at("/dir");
    assert_eq!(tour.says(&["ls", &place]), "a.txt\nb.dat\nsub/\n");
    assert!(tour.says(&["ls", "-a", &place]).contains(".hidden"));
    assert!(tour.says(&["ls", "-l", &place]).contains(" 5 "));
    assert!(tour.says(&["ls", "-r", &place]).contains("sub/deep"));
    assert_eq!(tour.says(&["ls", "--filter", "~*.txt", &place]), "a.txt\n");
    assert!(tour.fails(1, &["ls", &alpha.at("/nowhere")]).contains("ClientError.NotFound"));
    assert!(tour.says(&["stat", &alpha.at("/dir/a.txt")]).contains("Size:          5"));
    assert!(tour.says(&["stat", &alpha.at("/nowhere")]).contains("Nothing found"));
    tour.says(&["mkdir", &alpha.at("/dir/new")]);
    assert!(alpha.path("dir/new").is_dir());
    tour.says(&["rename", &alpha.collection, "/dir/b.dat", "/dir/new/c.dat"]);
    assert!(alpha.read("dir/new/c.dat") == b"1" && !alpha.path("dir/b.dat").exists());
}

fn transfers(tour: &Tour<'_>) {
    let (alpha, beta) = (tour.field.alpha(), tour.field.beta());
    alpha.write("one", "hello");
    alpha.write("tree/a", "a");
    alpha.write("tree/sub/b", vec![7; 300_000]);
    alpha.write("tree/c.tmp", "c");
    let (from, to) = (alpha.at("/tree"), beta.at("/tree"));

    tour.says(&["transfer", "--dry-run", &alpha.at("/one"), &beta.at("/one")]);
    tour.done(&["transfer", &alpha.at("/one"), &beta.at("/one")]);
    assert_eq!(beta.read("one"), b"hello");
    tour.done(&["transfer", "--recursive", &from, &to, "--exclude", "*.tmp"]);
    assert_eq!((beta.read("tree/a"), beta.read("tree/sub/b")), (b"a".to_vec(), vec![7; 300_000]));
    assert!(!beta.path("tree/c.tmp").exists());
    let list = tour.field.place("list");
    std::fs::write(&list, "one first\n--recursive tree second\n# a comment\n").unwrap();
    tour.done(&["transfer", "--batch", &list.display().to_string(), &alpha.at("/"), &beta.at("/batch/")]);
    assert_eq!((beta.read("batch/first"), beta.read("batch/second/c.tmp")), (b"hello".to_vec(), b"c".to_vec()));
    for level in ["exists", "size", "mtime", "checksum"] {
        let task = tour.done(&["transfer", "-r", &from, &to, "--exclude", "*.tmp", "--sync-level", level]);
        assert_eq!((&task["files_transferred"], &task["files_skipped"]), (&json!(0), &json!(2)), "{level}: {task:#}");
    }
}

fn options(tour: &Tour<'_>) {
    let (alpha, beta) = (tour.field.alpha(), tour.field.beta());
    let (from, to) = (alpha.at("/tree"), beta.at("/tree"));
    beta.write("tree/extra", "x");
    tour.done(&["transfer", "-r", &from, &to, "--delete-destination-extra", "-s", "size"]);
    assert!(!beta.path("tree/extra").exists() && beta.path("tree/c.tmp").exists());
    let chosen = ["--include", "a", "--exclude", "*"];
    tour.done(&[&["transfer", "-r", &from, &beta.at("/chosen")][..], &chosen[..]].concat());
    assert!(beta.path("chosen/a").exists() && !beta.path("chosen/c.tmp").exists());
    let one = [alpha.at("/one"), beta.at("/proven")];
    let right = ["--external-checksum", "5d41402abc4b2a76b9719d911017c592", "--checksum-algorithm", "MD5"];
    tour.done(&[&["transfer", &one[0], &one[1]][..], &right[..]].concat());
    assert_eq!(beta.read("proven"), b"hello");
    let wrong = ["transfer", &one[0], &beta.at("/wrong"), "--external-checksum", &"0".repeat(32)];
    let task = tour.id("task_id", &wrong);
    tour.fails(1, &["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    assert_eq!(tour.json(&["task", "show", &task])["fatal_error"]["code"], "EXTERNAL_CHECKSUM_MISMATCH");
    assert!(!beta.path("wrong").exists());
    let kept = ["--preserve-timestamp", "--encrypt-data", "--no-verify-checksum", "--fail-on-quota-errors"];
    tour.done(&[&["transfer", &one[0], &beta.at("/kept")][..], &kept[..]].concat());
    let modified = |path: std::path::PathBuf| path.metadata().unwrap().modified().unwrap();
    let difference = modified(alpha.path("one")).duration_since(modified(beta.path("kept"))).unwrap();
    assert!(difference.as_secs() < 1, "{difference:?}");
    let task = tour.done(&["transfer", "--skip-source-errors", &alpha.at("/missing"), &beta.at("/missing")]);
    let task = task["task_id"].as_str().unwrap();
    assert_eq!(tour.json(&["task", "show", "--skipped-errors", task])["DATA"][0]["error_code"], "FILE_NOT_FOUND");
}

fn tasks(tour: &Tour<'_>) {
    let (alpha, beta) = (tour.field.alpha(), tour.field.beta());
    let (from, to) = (alpha.at("/one"), beta.at("/waited"));
    let wish = json!({"endpoint_id": beta.endpoint, "message": "New disks", "pause_ls": false}).to_string();
    let rule = tour.id("id", &["api", "transfer", "POST", "/endpoint_manager/pause_rule", "--body", &wish]);

    let submission = tour.says(&["task", "generate-submission-id"]).trim().to_owned();
    let wish = ["transfer", &from, &to, "--submission-id", &submission, "--label", "first", "--deadline", "2099-01-01"];
    let task = tour.id("task_id", &wish);
    assert_eq!(tour.id("task_id", &wish), task, "the same submission is the same task");
    assert!(tour.fails(1, &["transfer", &from, &to]).contains("Conflict"));
    assert!(tour.says(&["task", "pause-info", &task]).contains("New disks"));
    assert!(tour.fails(1, &["mkdir", &beta.at("/paused")]).contains("New disks"));
    tour.fails(1, &["task", "wait", &task, "--timeout", "1", "--polling-interval", "1"]);
    tour.says(&["task", "update", &task, "--label", "second"]);
    assert_eq!(tour.json(&["task", "show", &task])["label"], "second");
    let other = tour.id("task_id", &["transfer", &from, &beta.at("/never")]);
    tour.says(&["task", "cancel", &other]);
    assert_eq!(tour.json(&["task", "show", &other])["fatal_error"]["code"], "CANCELED");
    tour.says(&["api", "transfer", "DELETE", &format!("/endpoint_manager/pause_rule/{rule}")]);
    tour.says(&["task", "wait", &task, "--timeout", "60", "--polling-interval", "1"]);
    assert!(beta.read("waited") == b"hello" && !beta.path("never").exists());

    let copied = tour.json(&["task", "show", "-t", &task]);
    assert_eq!(copied["DATA"][0]["destination_path"], "/waited");
    let events = tour.json(&["task", "event-list", &task]);
    let codes: Vec<_> = events["DATA"].as_array().unwrap().iter().map(|event| event["code"].clone()).collect();
    assert_eq!(codes, ["SUCCEEDED", "STARTED", "UNPAUSED", "PAUSED"]);
    assert!(tour.says(&["task", "event-list", "--filter-errors", &task]).lines().count() <= 2);
    assert!(tour.says(&["task", "list", "--limit", "5"]).contains(&task));
    let failed = tour.json(&["task", "list", "--filter-status", "FAILED", "--filter-type", "TRANSFER"]);
    assert_eq!(failed["DATA"].as_array().unwrap().len(), 2, "{failed:#}");
    assert_eq!(tour.json(&["task", "list", "--filter-label", "second"])["DATA"][0]["task_id"], task.as_str());
}

fn deletions(tour: &Tour<'_>) {
    let beta = tour.field.beta();
    for path in ["old/x.tmp", "old/y.tmp", "old/keep", "waste/x", "single", "listed/1", "listed/2"] {
        beta.write(path, "x");
    }
    tour.done(&["delete", "--enable-globs", &beta.at("/old/*.tmp")]);
    assert!(!beta.path("old/x.tmp").exists() && beta.path("old/keep").exists());
    tour.done(&["delete", "--recursive", &beta.at("/waste")]);
    tour.done(&["delete", "--ignore-missing", &beta.at("/waste")]);
    let list = tour.field.place("list");
    std::fs::write(&list, "1\n2\n").unwrap();
    tour.done(&["delete", "--batch", &list.display().to_string(), &beta.at("/listed")]);
    assert!(!beta.path("waste").exists() && beta.path("listed").is_dir() && !beta.path("listed/1").exists());
    tour.says(&["rm", "--timeout", "60", "--polling-interval", "1", &beta.at("/single")]);
    assert!(!beta.path("single").exists());
}

fn bookmarks(tour: &Tour<'_>) {
    let place = tour.field.alpha().at("/dir/");
    let id = tour.id("id", &["bookmark", "create", &place, "mark"]);
    assert!(tour.says(&["bookmark", "list"]).contains("mark"));
    tour.says(&["bookmark", "rename", "mark", "marked"]);
    assert_eq!(tour.says(&["bookmark", "show", "marked"]).trim(), place);
    tour.says(&["bookmark", "delete", &id]);
    assert!(tour.fails(1, &["bookmark", "show", "marked"]).contains("marked"));
}

fn permissions(tour: &Tour<'_>) {
    let (field, alpha) = (tour.field, tour.field.alpha());
    alpha.write("team/a", "a");
    let (bob, collection) = (field.person("bob"), alpha.collection.as_str());
    let guest = tour.id("id", &["gcs", "collection", "create", "guest", collection, "/team/", "the team's"]);
    assert!(tour.says(&["endpoint", "my-shared-endpoint-list", collection]).contains(&guest));
    let place = format!("{guest}:/");
    assert!(field.refused(&bob, &["ls", &place]).contains("PermissionDenied"));
    let rule = ["endpoint", "permission", "create", &place, "--identity", &bob.id, "--permissions", "r"];
    let rule = tour.id("access_id", &rule);
    assert_eq!(field.globus_as(&bob, &["ls", &place]), "a\n");
    assert!(field.refused(&bob, &["mkdir", &format!("{guest}:/new")]).contains("PermissionDenied"));
    tour.says(&["endpoint", "permission", "update", &guest, &rule, "--permissions", "rw"]);
    assert!(tour.says(&["endpoint", "permission", "show", &guest, &rule]).contains("rw"));
    field.globus_as(&bob, &["mkdir", &format!("{guest}:/new")]);
    assert!(alpha.path("team/new").is_dir());
    assert!(tour.says(&["endpoint", "permission", "list", &guest]).contains(&bob.id));
    tour.says(&["endpoint", "permission", "delete", &guest, &rule]);
    assert!(field.refused(&bob, &["ls", &place]).contains("PermissionDenied"));

    let role = ["endpoint", "role", "create", "--identity", &bob.id, "--role", "access_manager", &guest];
    let role = tour.id("id", &role);
    assert!(tour.says(&["endpoint", "role", "list", &guest]).contains("access_manager"));
    assert!(tour.says(&["endpoint", "role", "show", &guest, &role]).contains(&bob.id));
    field.globus_as(&bob, &["endpoint", "permission", "list", &guest]);
    tour.says(&["endpoint", "role", "delete", &guest, &role]);
    field.refused(&bob, &["endpoint", "permission", "list", &guest]);

    let group = tour.id("id", &["group", "create", "crew"]);
    tour.says(&["group", "member", "add", &group, &bob.id]);
    assert!(tour.says(&["group", "list"]).contains("crew"));
    assert!(tour.says(&["group", "show", &group]).contains("crew"));
    assert!(tour.says(&["group", "member", "list", &group]).contains(&bob.id));
    assert_eq!(tour.json(&["api", "groups", "GET", &format!("/v2/groups/{group}")])["name"], "crew");
    tour.says(&["endpoint", "permission", "create", &place, "--group", &group, "--permissions", "r"]);
    assert_eq!(field.globus_as(&bob, &["ls", &place]), "a\nnew/\n");
}

fn timers(tour: &Tour<'_>) {
    let (alpha, beta) = (tour.field.alpha(), tour.field.beta());
    let (from, to) = (alpha.at("/one"), beta.at("/later"));
    let wish = ["timer", "create", "transfer", "--name", "later", "--interval", "1d", "--start", "2099-01-01"];
    let timer = tour.id("job_id", &[&wish[..], &[&from, &to]].concat());
    assert!(tour.says(&["timer", "list"]).contains(&timer));
    tour.says(&["timer", "pause", &timer]);
    assert!(tour.says(&["timer", "show", &timer]).contains("Paused"));
    tour.says(&["timer", "resume", &timer]);
    assert_eq!(tour.json(&["timer", "show", &timer])["status"], "active");
    assert_eq!(tour.json(&["api", "timers", "GET", &format!("/jobs/{timer}")])["name"], "later");
    tour.says(&["timer", "delete", &timer]);
    assert!(!tour.says(&["timer", "list"]).contains(&timer));
    assert!(!beta.path("later").exists());
}
