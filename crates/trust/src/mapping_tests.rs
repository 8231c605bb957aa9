use serde::Deserialize;
use whimbrel_proto::mapping::{Document, Identity, documents};

use super::*;

/// Documents with the answers of Globus' own library (the PyPI package globus-identity-mapping 0.6.0), recorded; made by chance from
/// the language, without what is known to differ: `|` outside of parentheses, and groups that may match nothing more than once.
const RECORDED: &str = include_str!("../tests/data/identity-mapping.json");

#[derive(Deserialize)]
struct Recorded {
    cases: Vec<Case>,
    loads: Vec<Load>,
}

#[derive(Deserialize)]
struct Case {
    mappings: Vec<RawRule>,
    identities: Vec<serde_json::Map<String, serde_json::Value>>,
    first: Vec<First>,
    all: Option<Vec<Found>>,
}

#[derive(Deserialize)]
struct First {
    account: Option<String>,
    #[serde(default)]
    fault: bool,
}

#[derive(Deserialize)]
struct Found {
    rule: usize,
    id: String,
    accounts: Vec<String>,
}

#[derive(Deserialize)]
struct Load {
    #[serde(rename = "match")]
    pattern: String,
    loads: bool,
}

fn recorded() -> Recorded {
    serde_json::from_str(RECORDED).unwrap()
}

fn fields(identity: &serde_json::Map<String, serde_json::Value>) -> Vec<(String, String)> {
    identity.iter().map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned())).collect()
}

fn rule(pattern: &str, output: &str) -> RawRule {
    RawRule { source: "{username}".into(), pattern: pattern.into(), output: output.into(), ..RawRule::default() }
}

fn mapped(rules: &[RawRule], username: &str) -> Option<String> {
    let fields = [("username".to_owned(), username.to_owned())];
    mapper(rules).unwrap().first(Identity(&fields)).unwrap()
}

#[test]
fn rules_map_as_the_library_of_globus_maps() {
    let mut compared = 0;
    for case in recorded().cases {
        let mapper = mapper(&case.mappings).unwrap();
        let people: Vec<_> = case.identities.iter().map(fields).collect();
        let identities: Vec<_> = people.iter().map(|fields| Identity(fields)).collect();
        for (identity, expected) in identities.iter().zip(&case.first) {
            let found = mapper.first(*identity);
            assert_eq!(found.is_err(), expected.fault, "{:?} {identity:?}: {found:?}", case.mappings);
            assert_eq!(found.unwrap_or(None), expected.account, "{:?} {identity:?}", case.mappings);
            compared += 1;
        }
        let all = mapper.all(&identities).ok().map(|found| {
            let name = |at: usize| identities[at].field("id").unwrap().to_owned();
            found.into_iter().map(|one| (one.rule, name(one.identity), one.account)).collect::<Vec<_>>()
        });
        let expected = case.all.map(|found| {
            let each = |one: Found| one.accounts.into_iter().map(move |account| (one.rule, one.id.clone(), account));
            found.into_iter().flat_map(each).collect::<Vec<_>>()
        });
        assert_eq!(all, expected, "{:?}", case.mappings);
    }
    assert!(compared > 800, "{compared}");
}

#[test]
fn expressions_are_refused_where_globus_refuses_them_and_where_it_should() {
    for Load { pattern, loads } in recorded().loads {
        let ours = mapper(&[rule(&pattern, "x")]);
        let digits = pattern.split('\\').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        // With its library a backslash at the end escapes the end that it adds.
        let stricter = digits || pattern.contains("(?") || pattern.ends_with('\\');
        // Globus' reader looks for what is wrong without minding that a backslash may itself be escaped, or escape `*`.
        let looser = pattern.contains(r"\\") || pattern.contains(r"\*?") || pattern.contains(r"\??");
        if loads && !stricter {
            assert!(ours.is_ok(), "{pattern}: {ours:?}");
        }
        if !loads && !looser {
            assert!(ours.is_err(), "{pattern}");
        }
    }
}

#[test]
fn every_branch_has_to_fit_the_whole_text() {
    // Globus' library takes `alice.evil` for alice here, and `x-bob@example.org` for bob.
    let rules = [rule("alice|bob@example.org", "found")];
    assert_eq!(mapped(&rules, "alice").as_deref(), Some("found"));
    assert_eq!(mapped(&rules, "bob@example.org").as_deref(), Some("found"));
    for stranger in ["alice.evil", "x-bob@example.org", "alice\n", "xalice", "", "ALICE"] {
        assert_eq!(mapped(&rules, stranger), None, "{stranger:?}");
    }
    let rules = [rule(r"(.*)@example\.org", "{0}")];
    assert_eq!(mapped(&rules, "alice@example.org\n"), None);
    assert_eq!(mapped(&rules, "a\nb@example.org"), None, "a dot is no line end");
}

#[test]
fn letters_of_any_script_can_be_the_same_in_both_cases() {
    let rules = [RawRule { ignore_case: true, ..rule("(\u{e9}ric)@(X)", "{0}") }];
    assert_eq!(mapped(&rules, "\u{c9}RIC@x").as_deref(), Some("\u{c9}RIC"));
    let literal = [RawRule { literal: true, ..rule("a.(b)*", "x") }];
    assert_eq!(mapped(&literal, "a.(b)*").as_deref(), Some("x"));
    assert_eq!(mapped(&literal, "aa"), None);
}

#[test]
fn no_expression_takes_long() {
    let rules = [rule("(((a*)*)*)*b", "x")];
    assert_eq!(mapped(&rules, &"a".repeat(8000)), None);
    let rules = [rule(&"(a?)".repeat(32), "x")];
    assert_eq!(mapped(&rules, &"a".repeat(33)), None);
}

#[test]
fn toml_holds_the_same_documents() {
    let text = r#"
        DATA_TYPE = "expression_identity_mapping#1.0.0"
        [[mappings]]
        source = "{username}"
        match = '(.*)@example\.org'
        output = "{0}"
        [[mappings]]
        source = "{username}"
        match = "Root"
        output = "nobody"
        ignore_case = true
        literal = true
    "#;
    let document: Document = toml::from_str(text).unwrap();
    let json = serde_json::to_vec(&document).unwrap();
    assert_eq!(documents(&json).as_deref(), Ok(std::slice::from_ref(&document)));
    let Document::Expressions { mappings } = document else { panic!("rules") };
    assert_eq!(mapped(&mappings, "alice@example.org").as_deref(), Some("alice"));
    assert_eq!(mapped(&mappings, "rOOT").as_deref(), Some("nobody"));
    assert!(toml::from_str::<Document>(&text.replace("output", "outptu")).is_err());
}

#[test]
fn faults_name_the_rule() {
    let fault = mapper(&[rule("a", "b"), rule("(", "b")]).unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidArgument);
    assert!(fault.detail.contains("mapping rule 2"), "{fault}");
}
