//! Tests of mapping, from the administrator's files to an account's name.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::front::config::MappingConfig;
use crate::monitor::keeper::sources::Sources;

struct Site {
    dir: tempfile::TempDir,
    gridmap: Option<PathBuf>,
    mapping: Vec<MappingConfig>,
}

impl Site {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), gridmap: None, mapping: Vec::new() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn gridmap(mut self, text: &str) -> Self {
        self.gridmap = Some(self.file("grid-mapfile", text));
        self
    }

    /// Rules of source, match and output.
    fn rules(mut self, name: &str, of: &[ProofKind], rules: &[[&str; 3]]) -> Self {
        let rules: Vec<String> = rules
            .iter()
            .map(|[source, text, output]| format!("{{source = {source:?}, match = {text:?}, output = {output:?}}}"))
            .collect();
        let text = format!("DATA_TYPE = \"expression_identity_mapping#1.0.0\"\nmappings = [{}]\n", rules.join(", "));
        let file = self.file(&format!("{name}.toml"), &text);
        self.mapping.push(MappingConfig { file, of: of.to_vec() });
        self
    }

    fn program(mut self, words: &[&str]) -> Self {
        let text = format!("DATA_TYPE = \"external_identity_mapping#1.0.0\"\ncommand = {words:?}\n");
        let file = self.file("program.toml", &text);
        self.mapping.push(MappingConfig { file, of: Vec::new() });
        self
    }

    fn search(&self, claim: &Claim, wanted: Option<&str>) -> Search {
        let places = Sources::open(self.gridmap.clone(), &self.mapping).unwrap().lookups(Some(ProofKind::of(claim)));
        Search::new(claim, wanted.map(str::to_owned), places)
    }

    /// The account without any program.
    fn account(&self, claim: &Claim, wanted: Option<&str>) -> Option<(String, Origin)> {
        match self.search(claim, wanted).advance().unwrap() {
            Progress::Found(name, origin) => Some((name, origin)),
            Progress::Nobody => None,
            Progress::Ask { .. } => panic!("a program"),
        }
    }

    fn name(&self, claim: &Claim, wanted: Option<&str>) -> Option<String> {
        self.account(claim, wanted).map(|(name, _)| name)
    }
}

fn person(name: &str, vo: &[&str]) -> Claim {
    Claim::Certificate {
        subject: format!("/O=Grid/CN={name}"),
        vo: vo.iter().map(|attribute| (*attribute).to_owned()).collect(),
    }
}

fn token(subject: &str, groups: &[&str], claims: &[(&str, &str)]) -> Claim {
    Claim::Token {
        issuer: "https://i.example".into(),
        subject: subject.into(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        claims: claims.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
    }
}

fn some(name: &str) -> Option<String> {
    Some(name.to_owned())
}

#[test]
fn the_first_account_is_the_usual_one_and_others_are_for_the_asking() {
    let site = Site::new().gridmap("\"/O=Grid/CN=alice\" alice,shared\n");
    let alice = person("alice", &[]);
    assert_eq!(site.account(&alice, None), Some(("alice".to_owned(), Origin::Written)));
    assert_eq!(site.name(&alice, Some("shared")), some("shared"));
    assert_eq!(site.name(&alice, Some("bob")), None);
    assert_eq!(site.name(&person("bob", &[]), None), None);
}

#[test]
fn files_are_asked_in_their_order_and_all_together_give_what_may_be_used() {
    let any = [["{username}", "/O=Grid/CN=(.*)", "{0}"], ["{username}", "/O=Grid/CN=(.*)", "group"]];
    let site = Site::new().gridmap("\"/O=Grid/CN=alice\" special\n").rules("any", &[], &any);
    assert_eq!(site.name(&person("alice", &[]), None), some("special"));
    assert_eq!(site.account(&person("bob", &[]), None), Some(("bob".to_owned(), Origin::Computed)));
    for wanted in ["special", "alice", "group"] {
        assert_eq!(site.name(&person("alice", &[]), Some(wanted)), some(wanted));
    }
    assert_eq!(site.name(&person("bob", &[]), Some("special")), None);
}

#[test]
fn attributes_of_organizations_map_by_line_and_by_rule_the_first_of_them_first() {
    let vo = ["/atlas/Role=production", "/atlas"];
    let site = Site::new().gridmap("/atlas atlas\n/atlas/Role=production atlasprd\n/O=Evil/CN=x evil\n");
    assert_eq!(site.name(&person("alice", &vo), None), some("atlasprd"));
    assert_eq!(site.name(&person("alice", &vo), Some("atlas")), some("atlas"));
    assert_eq!(site.name(&person("alice", &["/cms"]), None), None);
    assert_eq!(site.name(&person("alice", &["/O=Evil/CN=x"]), None), None, "no subject can be put in as an attribute");
    let rules = [["{vo}", "/atlas(/.*)?", "atlas"], ["{vo}", "/cms", "cms"]];
    let site = Site::new().rules("vo", &[ProofKind::Certificate], &rules);
    assert_eq!(site.name(&person("alice", &["/cms", "/atlas"]), None), some("cms"), "the primary attribute");
    assert_eq!(site.name(&person("alice", &[]), None), None, "no attribute is no fault");
}

#[test]
fn tokens_map_by_their_claims_and_groups() {
    let rules = [["{group}", "/ops/(.*)", "ops-{0}"], ["{iss} {sub}", "https://i.example (.*)", "{0}"]];
    let site = Site::new().gridmap("alice gridalice\n").rules("t", &[ProofKind::Token], &rules);
    assert_eq!(site.name(&token("alice", &[], &[]), None), some("alice"), "the grid-mapfile is not for tokens");
    assert_eq!(site.name(&token("alice", &["/x", "/ops/a"], &[]), Some("ops-a")), some("ops-a"));
    assert_eq!(site.name(&person("alice", &[]), None), None, "nor are rules for tokens for certificates");
    let by_mail = Site::new().rules("m", &[], &[["{email}", "(.*)@x", "{0}"], ["{sub}", "(.*)", "{0}"]]);
    assert_eq!(by_mail.name(&token("a", &[], &[("email", "ann@x")]), None), some("ann"));
    assert_eq!(by_mail.name(&token("a", &[], &[]), None), None, "a missing field is a denial, not a miss");
}

#[test]
fn an_issuer_cannot_write_our_fields() {
    let rules = [["{type} {sub} {iss}", "token (.*) https://i.example", "{0}"], ["{vo}", ".*", "vo"]];
    let site = Site::new().rules("t", &[], &rules);
    let forged = token("a", &[], &[("sub", "root"), ("vo", "/atlas"), ("status", "unused"), ("type", "certificate")]);
    assert_eq!(site.name(&forged, None), some("a"));
}

#[test]
fn principals_map_by_line_and_by_rule() {
    let site =
        Site::new().gridmap("kim@EXAMPLE.ORG kim\n").rules("r", &[], &[["{realm}:{name}", "EXAMPLE.ORG:(.*)", "{0}"]]);
    let principal = |name: &str| Claim::Principal(name.into());
    assert_eq!(site.account(&principal("kim@EXAMPLE.ORG"), None), Some(("kim".to_owned(), Origin::Written)));
    assert_eq!(site.name(&principal("lee@EXAMPLE.ORG"), None), some("lee"));
    assert_eq!(site.name(&principal("lee@OTHER.ORG"), None), None);
}

#[test]
fn a_program_is_asked_in_its_place_as_globus_asks_it() {
    let site = Site::new().gridmap("/O=Grid/CN=bob bob\n").program(&["/bin/cat", "map"]);
    assert_eq!(site.name(&person("bob", &[]), None), some("bob"), "it is not asked");
    let mut search = site.search(&person("alice", &["/atlas"]), None);
    let Progress::Ask { words, question } = search.advance().unwrap() else { panic!("it is asked") };
    assert_eq!(words, ["/bin/cat", "map", "-c", CONNECTOR, "-s", GATEWAY]);
    let question = String::from_utf8(question).unwrap();
    assert!(
        question.contains(r#""id":"/O=Grid/CN=alice /atlas""#) && question.contains(r#""vo":"/atlas""#),
        "{question}"
    );
    let answer = |output| {
        format!(
            r#"{{"DATA_TYPE":"identity_mapping_output#1.0.0","result":[{{"id":"/O=Grid/CN=alice /atlas","output":"{output}"}}]}}"#
        )
    };
    let found = search.answered(answer("a1").as_bytes()).unwrap();
    assert!(matches!(found, Progress::Found(name, Origin::Computed) if name == "a1"));
    let mut all = site.search(&person("alice", &["/atlas"]), Some("a2"));
    let Progress::Ask { words, .. } = all.advance().unwrap() else { panic!("it is asked") };
    assert_eq!(words.last().unwrap(), "-a");
    assert!(matches!(all.answered(answer("a1").as_bytes()).unwrap(), Progress::Nobody), "another than the wanted one");
    for bad in ["{", &answer("a/b"), &answer("a1").replace("alice", "eve")] {
        assert_eq!(
            site.search(&person("alice", &["/atlas"]), None).answered(bad.as_bytes()).unwrap_err().code,
            FaultCode::ServerBusy
        );
    }
}

#[test]
fn a_file_that_cannot_be_used_stops_the_search_where_it_stands() {
    let site = Site::new().rules("one", &[], &[["{username}", "/O=Grid/CN=(a.*)", "{0}"]]).rules("two", &[], &[]);
    let mut sources = Sources::open(None, &site.mapping).unwrap();
    site.file("two.toml", "broken");
    let mut ask = |name: &str| {
        let claim = person(name, &[]);
        Search::new(&claim, None, sources.lookups(Some(ProofKind::Certificate)))
            .advance()
            .map(|found| format!("{found:?}"))
    };
    assert!(ask("ann").unwrap().contains("ann"));
    assert_eq!(ask("bob").unwrap_err().code, FaultCode::InvalidArgument);
}
