use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Understands `(.*)TEXT`, `(.*)TEXT|(.*)TEXT` and `TEXT` where TEXT stands for itself.
#[derive(Debug, Clone)]
struct Ends(Expression);

impl Matcher for Ends {
    fn groups(&self, text: &str) -> Option<Vec<Option<String>>> {
        let inner = self.0.regex().strip_prefix(r"\A(?:").unwrap().strip_suffix(r")\z").unwrap();
        let branches: Vec<&str> = inner.split('|').collect();
        for (place, branch) in branches.iter().enumerate() {
            let (captures, end) = match branch.strip_prefix("(.*)") {
                Some(end) => (true, end),
                None => (false, *branch),
            };
            let end = end.replace('\\', "");
            let Some(start) = text.strip_suffix(&end).filter(|start| captures || start.is_empty()) else { continue };
            let group = |at| (captures && at == place).then(|| start.to_owned());
            return Some((0..self.0.groups()).map(group).collect());
        }
        None
    }
}

fn rule(source: &str, pattern: &str, output: &str) -> RawRule {
    RawRule { source: source.into(), pattern: pattern.into(), output: output.into(), ..RawRule::default() }
}

fn mapper(rules: &[RawRule]) -> Result<Mapper<Ends>, MappingError> {
    Mapper::new(rules, |expression| Ok(Ends(expression.clone())))
}

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn first(rules: &[RawRule], identity: &[(&str, &str)]) -> Result<Option<String>, MapFault> {
    mapper(rules).unwrap().first(Identity(&fields(identity)))
}

fn wrong(rule: RawRule) -> String {
    mapper(&[rule]).unwrap_err().to_string()
}

mod documents {
    use super::*;

    const RULES: &str = r#"{"DATA_TYPE":"expression_identity_mapping#1.0.0","mappings":[
        {"source":"{username}","match":"(.*)@example\\.org","output":"{0}"},
        {"source":"{id}","match":"1.2","output":"x","ignore_case":true,"literal":true}]}"#;

    fn read(json: &str) -> Result<Vec<Document>, String> {
        super::super::documents(json.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_holds_one_document_or_a_list() {
        let literal = RawRule { ignore_case: true, literal: true, ..rule("{id}", "1.2", "x") };
        let mappings = vec![rule("{username}", r"(.*)@example\.org", "{0}"), literal];
        let rules = Document::Expressions { mappings };
        assert_eq!(read(RULES), Ok(vec![rules.clone()]));
        let command = r#"{"DATA_TYPE":"external_identity_mapping#1.0.0","command":["/opt/map","-n",3,0.5]}"#;
        let words = vec![Word::Text("/opt/map".into()), Word::Text("-n".into()), Word::Whole(3), Word::Broken(0.5)];
        let program = Document::Command { command: words.clone() };
        assert_eq!(read(&format!(" [{RULES},{command}]")), Ok(vec![rules.clone(), program]));
        assert_eq!(super::super::words(&words).unwrap(), ["/opt/map", "-n", "3", "0.5"]);
        let written = serde_json::to_string(&rules).unwrap();
        assert_eq!(read(&written), Ok(vec![rules]));
        assert!(!written.contains("null"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (bad, why) in [
            ("", "EOF"),
            ("{}", "DATA_TYPE"),
            (r#"{"DATA_TYPE":"expression_identity_mapping#2.0.0","mappings":[]}"#, "unknown variant"),
            (r#"{"DATA_TYPE":"expression_identity_mapping#1.0.0"}"#, "mappings"),
            (r#"{"DATA_TYPE":"expression_identity_mapping#1.0.0","mappings":[],"more":1}"#, "more"),
            (r#"{"DATA_TYPE":"expression_identity_mapping#1.0.0","mappings":[],"mappings":[]}"#, "duplicate"),
            (r#"{"DATA_TYPE":"expression_identity_mapping#1.0.0","mappings":[{"source":"a","match":"b"}]}"#, "output"),
            (
                r#"{"DATA_TYPE":"expression_identity_mapping#1.0.0","mappings":[{"source":"a","match":"b","output":"c","ignorecase":true}]}"#,
                "ignorecase",
            ),
            (r#"{"DATA_TYPE":"external_identity_mapping#1.0.0","command":[["x"]]}"#, "match"),
        ] {
            let found = read(bad).unwrap_err();
            assert!(found.contains(why), "{bad}: {found}");
        }
        assert!(super::super::documents(&vec![b' '; MAX_DOCUMENT + 1]).is_err());
        let noisy = format!("{{\"DATA_TYPE\":\"a\\n{}\"}}", "x".repeat(1000));
        let complaint = read(&noisy).unwrap_err();
        assert!(complaint.len() < 300 && !complaint.contains('\n'));
    }

    #[test]
    fn a_command_is_an_absolute_path_with_a_few_arguments() {
        let text = |text: &str| Word::Text(text.into());
        let refused = |words: &[Word]| super::super::words(words).is_err();
        assert!(refused(&[]) && refused(&[text("map")]) && refused(&[text("/map"), text("a\0b")]));
        assert!(refused(&[text("/map"), text(&"x".repeat(MAX_TEXT + 1))]));
        assert!(refused(&vec![text("/map"); MAX_WORDS + 1]) && !refused(&vec![text("/map"); MAX_WORDS]));
    }

    #[test]
    fn too_many_rules_are_refused() {
        let rules = vec![rule("a", "b", "c"); MAX_RULES + 1];
        assert!(matches!(mapper(&rules), Err(MappingError::Document(_))));
        assert!(mapper(&rules[1..]).is_ok());
    }
}

mod expressions {
    use super::*;

    #[test]
    fn only_the_six_signs_keep_a_meaning() {
        for (text, regex, groups) in [
            ("", r"\A(?:)\z", 0),
            ("a.b?c*|(d)", r"\A(?:a.b?c*|(d))\z", 1),
            (r"(.*)@example\.org", r"\A(?:(.*)@example\.org)\z", 1),
            ("^a+[b]{2}$#-~&", r"\A(?:\^a\+\[b\]\{2\}\$\#\-\~\&)\z", 0),
            (r"\.\?\*\|\(\)\\", r"\A(?:\.\?\*\|\(\)\\)\z", 0),
            (r#"\""#, "\\A(?:\")\\z", 0),
            (r"\\d", r"\A(?:\\d)\z", 0),
            (r"\*?\?*", r"\A(?:\*?\?*)\z", 0),
            ("((a)|b)*c", r"\A(?:((a)|b)*c)\z", 2),
            ("a||b", r"\A(?:a||b)\z", 0),
            ("\u{fc}()", "\\A(?:\u{fc}())\\z", 1),
        ] {
            let expression = Expression::parse(text).unwrap();
            assert_eq!((expression.regex(), expression.groups()), (regex, groups), "{text}");
            assert!(!expression.ignores_case() && expression.ignoring_case(true).ignores_case());
        }
        let literal = Expression::literal(r"a.(b)\1");
        assert_eq!((literal.regex(), literal.groups()), (r"\A(?:a\.\(b\)\\1)\z", 0));
    }

    #[test]
    fn everything_else_is_refused() {
        use ExpressionError::{BackReference, Escape, Groups, Parenthesis, Repeat, Unfinished};
        for (text, error) in [
            ("*a", Repeat('*')),
            ("?", Repeat('?')),
            ("a*?", Repeat('?')),
            ("a??", Repeat('?')),
            ("a**", Repeat('*')),
            ("a|*", Repeat('*')),
            ("(*a)", Repeat('*')),
            ("(?:a)", Repeat('?')),
            ("(?i)a", Repeat('?')),
            (r"\d", Escape('d')),
            (r"\A", Escape('A')),
            (r"\+", Escape('+')),
            (r"(a)\1", BackReference('1')),
            (r"a\", Unfinished),
            ("(a", Parenthesis),
            ("a)", Parenthesis),
            (")(", Parenthesis),
        ] {
            assert_eq!(Expression::parse(text), Err(error), "{text}");
        }
        assert!(Expression::parse(&"()".repeat(MAX)).is_ok());
        assert_eq!(Expression::parse(&"()".repeat(MAX + 1)), Err(Groups));
    }

    const MAX: usize = 32;

    proptest! {
        #[test]
        fn a_translation_has_no_other_meta_characters(text in "[a-c.?*|()\\\\^$+{}\\[\\]1 \u{e9}]{0,12}") {
            if let Ok(expression) = Expression::parse(&text) {
                let inner = expression.regex().strip_prefix(r"\A(?:").unwrap().strip_suffix(r")\z").unwrap();
                let mut characters = inner.chars();
                while let Some(character) = characters.next() {
                    match character {
                        '\\' => prop_assert!(!characters.next().unwrap().is_alphanumeric()),
                        other => prop_assert!(!"^$+{}[]".contains(other), "a meta character"),
                    }
                }
            }
        }
    }
}

mod templates {
    use super::*;

    fn fill(text: &str, identity: &[(&str, &str)], groups: &[Option<&str>]) -> Result<String, MapReason> {
        let groups: Vec<Option<String>> = groups.iter().map(|group| group.map(str::to_owned)).collect();
        Template::parse(text, groups.len()).unwrap().fill(Identity(&fields(identity)), &groups)
    }

    #[test]
    fn fields_and_groups_are_put_in_once() {
        let identity = [("username", "{0}{x}"), ("wlcg.sub-id", "7"), ("https://h/claim", "c")];
        let filled = |text| fill(text, &identity, &[Some("g0"), Some("{username}")]);
        for (text, expected) in [
            ("", ""),
            ("plain }", "plain }"),
            ("{username}", "{0}{x}"),
            ("{0}-{1}-{00}", "g0-{username}-g0"),
            ("a{wlcg.sub-id}b{https://h/claim}", "a7bc"),
            (r"\{username}", r"\{username}"),
            (r"\\{0}", r"\\g0"),
            (r"\\\{0}", r"\\\{0}"),
            (r"a\b{0}", r"a\bg0"),
            (r"\{a{0}", r"\{ag0"),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(filled("{nobody}"), Err(MapReason::Field("nobody".into())));
        assert_eq!(fill("{1}", &[], &[Some("a"), None]), Err(MapReason::Group(1)));
    }

    #[test]
    fn names_are_checked_before_anybody_is_mapped() {
        use TemplateError::{Group, Name, Open};
        let named = |name: &str| Err(Name(name.into()));
        for (text, error) in [
            ("{a", Err(Open)),
            ("{}", named("")),
            ("{a{b}", named("a{b")),
            ("{ 0 }", named(" 0 ")),
            ("{-1}", named("-1")),
            ("{+1}", named("+1")),
            ("{1_0}", named("1_0")),
            ("{\u{661}}", named("\u{661}")),
            ("{a b}", named("a b")),
            ("{a\nb}", named("ab")),
            ("{1}", Err(Group("1".into()))),
            ("{99999999999999999999}", Err(Group("99999999999999999999".into()))),
        ] {
            assert_eq!(Template::parse(text, 1), error, "{text}");
        }
    }
}

mod evaluation {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let rules = [
            rule("{username}", r"(.*)@example\.org", "{0}"),
            rule("{username}", "bob@example.com", "robert"),
            rule("{username}", r"(.*)@example\.com", "x_{0}"),
        ];
        let of = |name: &str| first(&rules, &[("username", name)]).unwrap();
        assert_eq!(of("alice@example.org").as_deref(), Some("alice"));
        assert_eq!(of("bob@example.com").as_deref(), Some("robert"));
        assert_eq!(of("eve@example.com").as_deref(), Some("x_eve"));
        assert_eq!(of("eve@example.net"), None);
        assert_eq!(of("a@example.org.evil"), None);
    }

    #[test]
    fn all_rules_together_give_every_account_in_order() {
        let rules = [rule("{name}", r"(.*)\.x", "{0}"), rule("{name}", "(.*)x", "{0}y")];
        let mapper = mapper(&rules).unwrap();
        let people = [
            fields(&[("name", "a.x"), ("status", "used")]),
            fields(&[("name", "bx"), ("status", "private")]),
            fields(&[("name", "c.x"), ("status", "unused")]),
            fields(&[("name", "d.x")]),
        ];
        let identities: Vec<_> = people.iter().map(|fields| Identity(fields)).collect();
        let mapped = mapper.all(&identities).unwrap();
        let short: Vec<_> = mapped.iter().map(|found| (found.rule, found.identity, found.account.as_str())).collect();
        assert_eq!(short, [(1, 0, "a"), (1, 3, "d"), (2, 0, "a.y"), (2, 1, "by"), (2, 3, "d.y")]);
        let unnamed = fields(&[("id", "1")]);
        let fault = mapper.all(&[Identity(&unnamed)]).unwrap_err();
        assert_eq!(fault.to_string(), "mapping rule 1: the identity has no field name");
    }

    #[test]
    fn a_missing_field_is_a_fault_and_not_a_rule_that_does_not_fit() {
        let rules = [rule("{username}", "x", "y"), rule("{email}", "(.*)", "{0}")];
        let fault = first(&rules, &[("username", "a")]).unwrap_err();
        assert_eq!(fault, MapFault { rule: 2, reason: MapReason::Field("email".into()) });
        assert_eq!(first(&rules, &[("username", "x")]).unwrap().as_deref(), Some("y"));
        assert_eq!(first(&rules[1..], &[("email", "e")]).unwrap().as_deref(), Some("e"));
        let output = [rule("{username}", "(.*)", "{nobody}")];
        assert_eq!(first(&output, &[("username", "a")]).unwrap_err().reason, MapReason::Field("nobody".into()));
    }

    #[test]
    fn a_branch_not_taken_names_no_account() {
        let rules = [rule("{username}", "(.*)@a|(.*)@b", "{0}")];
        assert_eq!(first(&rules, &[("username", "x@a")]).unwrap().as_deref(), Some("x"));
        let fault = first(&rules, &[("username", "x@b")]).unwrap_err();
        assert_eq!(fault.to_string(), "mapping rule 1: group {0} matched nothing");
    }

    #[test]
    fn an_output_has_to_be_the_name_of_an_account() {
        let rules = [rule("{username}", "(.*)", "{0}")];
        let long = "x".repeat(MAX_ACCOUNT + 1);
        for bad in ["", "a/b", "a:b", "a\nb", "a\0", "..\u{85}", &long] {
            assert_eq!(first(&rules, &[("username", bad)]).unwrap_err().reason, MapReason::Account, "{bad:?}");
        }
        assert!(first(&rules, &[("username", &long[1..])]).is_ok());
        let huge = "x".repeat(MAX_SOURCE + 1);
        assert_eq!(first(&rules, &[("username", &huge)]).unwrap_err().reason, MapReason::Source);
    }

    #[test]
    fn faults_of_rules_name_the_rule() {
        let good = rule("a", "b", "c");
        let found = mapper(&[good.clone(), rule("{username}", "(a*?)", "{0}")]).unwrap_err().to_string();
        assert_eq!(found, "mapping rule 2 ((a*?)): match: ? follows nothing that could be repeated");
        assert!(wrong(rule("{0}", "(a)", "b")).contains("source: {0} is a group"));
        assert!(wrong(rule("{a}", "(a)", "{1}")).contains("output: {1} is a group that `match` does not have"));
        let literal = RawRule { literal: true, ..rule("{a}", "(a)", "{0}") };
        assert!(wrong(literal).contains("output: {0} is a group"));
        assert!(wrong(rule("{a}", &"x".repeat(MAX_TEXT + 1), "b")).contains("match is longer than 1024 bytes"));
        let refused = Mapper::<Ends>::new(&[good], |_| Err("too large".into())).unwrap_err().to_string();
        assert_eq!(refused, "mapping rule 1 (b): match: too large");
    }

    #[test]
    fn without_rules_the_one_domain_is_taken_off() {
        assert_eq!(in_domain("alice@example.org", "example.org"), Some("alice"));
        assert_eq!(in_domain("alice@Example.ORG", "example.org"), Some("alice"));
        for name in ["alice", "@example.org", "a@b@example.org", "alice@xexample.org", "a/b@example.org", ""] {
            assert_eq!(in_domain(name, "example.org"), None, "{name}");
        }
    }
}

mod commands {
    use super::super::command::{CommandError, MAX_OUTPUT, MAX_RESULTS, input, output};
    use super::*;

    fn people() -> [Vec<(String, String)>; 2] {
        [fields(&[("id", "i-1"), ("username", "a\"b")]), fields(&[("username", "c"), ("id", "i-2")])]
    }

    fn read(answer: &str) -> Result<Vec<Mapped>, CommandError> {
        let people = people();
        output(answer.as_bytes(), &[Identity(&people[0]), Identity(&people[1])])
    }

    #[test]
    fn a_program_is_asked_for_identities_with_all_their_fields() {
        let people = people();
        let document = input(&[Identity(&people[0]), Identity(&people[1])]).unwrap();
        let expected = json!({
            "DATA_TYPE": "identity_mapping_input#1.0.0",
            "identities": [{"id": "i-1", "username": "a\"b"}, {"username": "c", "id": "i-2"}],
        });
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&document).unwrap(), expected);
        let unnamed = fields(&[("username", "x")]);
        assert_eq!(input(&[Identity(&unnamed)]), Err(CommandError::Id));
        assert_eq!(input(&[Identity(&people[0]), Identity(&people[0])]), Err(CommandError::Id));
    }

    #[test]
    fn an_answer_maps_the_identities_that_were_asked_about() {
        let answer = r#"{"DATA_TYPE":"identity_mapping_output#1.0.0","result":[
            {"id":"i-2","output":"carol"},{"output":"alice","id":"i-1"},{"id":"i-2","output":"c2"}]}"#;
        let found: Vec<_> = read(answer).unwrap().into_iter().map(|m| (m.rule, m.identity, m.account)).collect();
        assert_eq!(found, [(1, 1, "carol".into()), (2, 0, "alice".into()), (3, 1, "c2".into())]);
        assert_eq!(read(" \n"), Ok(vec![]));
        assert_eq!(read(r#"{"result":[]}"#), Ok(vec![]));
    }

    #[test]
    fn one_wrong_result_spoils_the_answer() {
        let one = |id: &str, output: &str| {
            format!(r#"{{"result":[{{"id":"i-1","output":"a"}},{{"id":"{id}","output":"{output}"}}]}}"#)
        };
        assert_eq!(read(&one("i-3", "root")), Err(CommandError::Stranger));
        assert_eq!(read(&one("I-1", "x")), Err(CommandError::Stranger));
        for account in ["", "a/b", "a:b", "\\u0000", "a\\nb"] {
            assert_eq!(read(&one("i-1", account)), Err(CommandError::Account), "{account}");
        }
        for bad in [
            "x",
            "[]",
            "{}",
            r#"{"result":[{"id":"i-1"}]}"#,
            r#"{"result":[{"id":1,"output":"a"}]}"#,
            r#"{"result":[],"error":"x"}"#,
            r#"{"result":[],"result":[]}"#,
            r#"{"result":[{"id":"i-1","output":"a","output":"b"}]}"#,
            r#"{"result":[]} trailing"#,
            r#"{"DATA_TYPE":"identity_mapping_output#2.0.0","result":[]}"#,
        ] {
            assert!(matches!(read(bad), Err(CommandError::Form(_))), "{bad}");
        }
        let many = vec![r#"{"id":"i-1","output":"a"}"#; MAX_RESULTS + 1].join(",");
        assert_eq!(read(&format!("{{\"result\":[{many}]}}")), Err(CommandError::TooLong));
        assert_eq!(output(&vec![b' '; MAX_OUTPUT + 1], &[]), Err(CommandError::TooLong));
    }
}
