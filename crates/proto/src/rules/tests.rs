use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

const READ: Operations = Operations::READING;

fn ops(words: &[Operation]) -> Operations {
    words.iter().copied().collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

mod paths {
    use super::*;

    fn inside(path: &str, operations: Operations) -> PathRule {
        PathRule { inside: true, ..PathRule::allow(path, operations) }
    }

    #[test]
    fn the_longest_rule_that_speaks_of_an_operation_decides() {
        use Operation::{Create, Delete, Modify, Read};
        let rules = PathRules::new(
            READ,
            &[
                PathRule::allow("/data", Operations::ALL),
                PathRule::deny("/data/raw", ops(&[Create, Modify, Delete])),
                PathRule::allow("/data/raw/incoming/", ops(&[Create])),
                PathRule::deny("/secret", Operations::ALL),
            ],
        )
        .unwrap();
        for (path, operation, expected) in [
            ("/", Read, true),
            ("/", Create, false),
            ("/data", Delete, true),
            ("/database", Delete, false),
            ("/data/raw/x", Read, true),
            ("/data/raw/x", Delete, false),
            ("/data/raw/incoming/x", Create, true),
            ("/data/raw/incoming/x", Delete, false),
            ("/secret", Read, false),
            ("/secret/a/b", Read, false),
            ("/secrets", Read, true),
        ] {
            assert_eq!(rules.allows(path.as_bytes(), operation), expected, "{operation} {path}");
        }
        assert_eq!(rules.deciding(b"/data//raw/x"), b"/data/raw");
        assert_eq!(rules.deciding(b"/elsewhere"), b"/");
    }

    #[test]
    fn a_denied_subtree_stays_denied_however_its_path_is_spelt() {
        let rules = PathRules::new(Operations::ALL, &[PathRule::deny("/a/secret", Operations::ALL)]).unwrap();
        for path in [
            "/a/secret",
            "/a/secret/",
            "//a///secret/x",
            "/./a/./secret/./x",
            "/a/b/../secret",
            "/../a/secret",
            "a/secret",
            "",
            "/a/secret\0",
            "/a\0/open",
        ] {
            assert!(rules.at(path.as_bytes()).is_empty(), "{path:?}");
            assert!(!rules.allows_stat(path.as_bytes()) && !rules.allows_mkdir(path.as_bytes()), "{path:?}");
            assert!(!rules.allows_tree(path.as_bytes(), Operation::Read), "{path:?}");
            assert!(!rules.allows_rename(path.as_bytes(), b"/a/x", true, false), "{path:?}");
            assert!(!rules.allows_rename(b"/a/x", path.as_bytes(), true, false), "{path:?}");
        }
        assert!(rules.allows(b"/a/secre", Operation::Read) && rules.allows(b"/a/secret\xff", Operation::Read));
    }

    #[test]
    fn of_two_rules_for_one_path_the_denial_counts() {
        let allow = PathRule::allow("/x", Operations::ALL);
        let deny = PathRule::deny("/x/", ops(&[Operation::Delete]));
        for rules in [[allow.clone(), deny.clone()], [deny, allow]] {
            let rules = PathRules::new(Operations::NONE, &rules).unwrap();
            assert_eq!(rules.at(b"/x/y"), Operations::ALL & !ops(&[Operation::Delete]));
        }
    }

    #[test]
    fn a_rule_for_the_inside_of_a_directory_says_nothing_of_the_directory() {
        use Operation::{Create, List, Read};
        let rules = PathRules::new(Operations::NONE, &[inside("/foo/bar/", ops(&[Create, Read, List]))]).unwrap();
        assert_eq!(rules.at(b"/foo/bar"), ops(&[List]));
        assert_eq!(rules.at(b"/foo/bar/qux"), ops(&[Create, Read, List]));
        assert!(rules.allows_mkdir(b"/foo") && rules.allows_mkdir(b"/foo/bar") && rules.allows_mkdir(b"/foo/bar/qux"));
        assert!(!rules.allows_mkdir(b"/foo/bargain") && !rules.allows(b"/foo", Create));
        assert!(rules.allows_stat(b"/foo") && rules.allows_stat(b"/foo/bar/x") && !rules.allows_stat(b"/food"));
    }

    #[test]
    fn whole_trees_are_allowed_only_without_exceptions_in_them() {
        let rules = PathRules::new(
            Operations::ALL,
            &[PathRule::deny("/a/b/c", ops(&[Operation::Read])), PathRule::deny("/a-b", Operations::ALL)],
        )
        .unwrap();
        assert!(!rules.allows_tree(b"/", Operation::Read));
        assert!(!rules.allows_tree(b"/a", Operation::Read));
        assert!(!rules.allows_tree(b"/a/b/c/d", Operation::Read));
        assert!(rules.allows_tree(b"/a", Operation::Delete));
        assert!(rules.allows_tree(b"/a/b/d", Operation::Read));
    }

    #[test]
    fn a_rename_makes_nothing_possible_that_was_not() {
        use Operation::{Create, Delete, Modify};
        let writing = ops(&[Create, Modify, Delete]);
        let rules = PathRules::new(
            Operations::NONE,
            &[
                PathRule::allow("/in", writing),
                PathRule::allow("/out", Operations::ALL),
                PathRule::allow("/drop", ops(&[Create])),
                PathRule::deny("/out/kept", Operations::ALL),
            ],
        )
        .unwrap();
        let rename =
            |from: &str, to: &str, tree, replaces| rules.allows_rename(from.as_bytes(), to.as_bytes(), tree, replaces);
        assert!(rename("/out/a", "/out/b", false, true));
        assert!(rename("/out/a", "/out/b", true, false));
        assert!(rename("/out/a", "/in/b", true, true));
        assert!(!rename("/in/a", "/out/b", false, false), "it would become readable");
        assert!(!rename("/out", "/in/out", true, false), "what is kept would not be any more");
        assert!(!rename("/out/a", "/out/kept/a", false, false));
        assert!(rename("/drop/a", "/drop/b", false, false));
        assert!(!rename("/drop/a", "/drop/b", false, true), "nothing may be replaced");
        assert!(!rename("/elsewhere", "/out/b", false, false));
    }

    #[test]
    fn rules_without_writing_allow_reading_only() {
        let rules = PathRules::everything().read_only();
        assert_eq!(rules.at(b"/x"), READ);
        assert!(!rules.allows_mkdir(b"/x") && rules.allows_stat(b"/x"));
        assert_eq!(PathRules::nothing().at(b"/"), Operations::NONE);
    }

    #[test]
    fn rules_that_cannot_be_kept_are_refused() {
        for path in ["", "a", "a/b", "/a/../b", "/a\0", "../x"] {
            let rule = PathRule::deny(path, Operations::ALL);
            assert!(matches!(PathRules::new(READ, &[rule]), Err(RuleError::Path(_))), "{path:?}");
        }
        let long = PathRule::deny(vec![b'/'; MAX_PATH + 1], Operations::ALL);
        assert!(PathRules::new(READ, &[long]).is_err());
        let many = vec![PathRule::deny("/a", READ); MAX_RULES + 1];
        assert_eq!(PathRules::new(READ, &many), Err(RuleError::Count));
        assert!(PathRules::new(READ, &many[1..]).is_ok());
    }

    #[test]
    fn what_comes_over_a_wire_is_checked_again() {
        let rules = PathRules::new(READ, &[PathRule::deny("/a", Operations::ALL), inside("/b", READ)]).unwrap();
        let json = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<PathRules>(&json).unwrap(), rules);
        let path = |path: &str| format!("[[[{:?},[],[]]],false]", path.as_bytes());
        let read = |path: &str| serde_json::from_str::<PathRules>(path);
        assert!(read(&path("/a/..")).is_err() && read(&path("a")).is_err());
        let odd = read(&format!("[[[[],[\"read\"],[\"read\"]],[{:?},[],[]]],false]", b"//a/")).unwrap();
        assert!(odd.at(b"/a/x").is_empty() && odd.allows(b"/b", Operation::Read), "an odd spelling denies as well");
        let many = vec!["[[],[],[]]"; MAX_RULES + 2].join(",");
        assert!(read(&format!("[[{many}],false]")).is_err());
    }

    #[test]
    fn a_rule_is_written_in_words() {
        let rule = PathRule::deny("/a", ops(&[Operation::Modify, Operation::Delete]));
        let json = serde_json::to_value(&rule).unwrap();
        assert_eq!(json["operations"], serde_json::json!(["modify", "delete"]));
        assert_eq!(json["verdict"], "deny");
        assert_eq!(serde_json::from_value::<PathRule>(json).unwrap(), rule);
        assert_eq!(Operation::ALL.map(Operation::word).concat(), "readlistcreatemodifydelete");
        assert_eq!(format!("{:?}", READ), "{Read, List}");
    }

    fn any_path() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec("[a-c]|[a-c]{2}|-", 0..5)
            .prop_map(|names| format!("/{}", names.join("/")).into_bytes())
    }

    fn any_ops() -> impl Strategy<Value = Operations> {
        (0u8..32).prop_map(Operations)
    }

    fn any_rules() -> impl Strategy<Value = Vec<PathRule>> {
        let rule =
            (any_path(), any::<bool>(), any_ops(), any::<bool>()).prop_map(|(path, allow, operations, inside)| {
                PathRule { path, verdict: if allow { Verdict::Allow } else { Verdict::Deny }, operations, inside }
            });
        proptest::collection::vec(rule, 0..8)
    }

    /// What a rule says about an operation at a path, and how many names it is long.
    fn says(rule: &PathRule, path: &[u8], operation: Operation) -> Option<(usize, bool)> {
        let names = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
        };
        let (rules, path) = (names(&rule.path), names(path));
        let speaks = rule.operations.has(operation)
            && (!rule.inside || path.len() > rules.len() || operation == Operation::List);
        (speaks && path.starts_with(&rules)).then_some((rules.len(), rule.verdict == Verdict::Deny))
    }

    /// Every way to write it that means the same.
    fn respelt(path: &[u8], how: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut how = how.iter().cycle();
        for &byte in path {
            out.push(byte);
            if byte == b'/' {
                match how.next().copied().unwrap_or(0) % 3 {
                    1 => out.extend_from_slice(b"./"),
                    2 => out.push(b'/'),
                    _ => {}
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn the_map_decides_as_the_list_of_rules_does(rules in any_rules(), otherwise in any_ops(), path in any_path(), how: Vec<u8>) {
            let made = PathRules::new(otherwise, &rules).unwrap();
            for operation in Operation::ALL {
                // Of equal length the denial, which is the greater of the two.
                let decided = rules.iter().filter_map(|rule| says(rule, &path, operation)).max();
                let expected = decided.map_or(otherwise.has(operation), |(_, denied)| !denied);
                prop_assert_eq!(made.allows(&path, operation), expected);
                prop_assert_eq!(made.allows(&respelt(&path, &how), operation), expected);
            }
        }

        #[test]
        fn both_together_allow_what_each_allows(a in any_rules(), b in any_rules(), x in any_ops(), y in any_ops(), path in any_path(), other in any_path()) {
            let (a, b) = (PathRules::new(x, &a).unwrap(), PathRules::new(y, &b).unwrap());
            let both = a.and(&b);
            prop_assert_eq!(both.at(&path), a.at(&path) & b.at(&path));
            for operation in Operation::ALL {
                prop_assert_eq!(both.allows_tree(&path, operation), a.allows_tree(&path, operation) && b.allows_tree(&path, operation));
            }
            prop_assert!(!both.allows_mkdir(&path) || (a.allows_mkdir(&path) && b.allows_mkdir(&path)));
            prop_assert!(!both.allows_stat(&path) || (a.allows_stat(&path) && b.allows_stat(&path)));
            let needs = |rules: &PathRules| rules.at(&path).has(Operation::Delete) || rules.at(&path).has(Operation::Create);
            if both.allows_rename(&path, &other, false, false) {
                prop_assert!(needs(&a) && needs(&b) && both.at(&path).covers(both.at(&other)));
            }
            prop_assert_eq!(a.clone().and(&PathRules::everything()).at(&path), a.at(&path));
            prop_assert_eq!(a.clone().read_only().at(&path), a.at(&path) & READ);
            let wire = serde_json::to_string(&both).unwrap();
            prop_assert_eq!(serde_json::from_str::<PathRules>(&wire).unwrap(), both);
        }

        #[test]
        fn a_tree_is_allowed_only_if_every_place_in_it_is(rules in any_rules(), otherwise in any_ops(), path in any_path(), below in any_path()) {
            let rules = PathRules::new(otherwise, &rules).unwrap();
            for operation in Operation::ALL {
                if rules.allows_tree(&path, operation) {
                    prop_assert!(rules.allows(&[&path[..], &below].concat(), operation));
                }
            }
        }

        #[test]
        fn no_path_panics(rules in any_rules(), path: Vec<u8>, other: Vec<u8>) {
            let rules = PathRules::new(Operations::ALL, &rules).unwrap();
            let _ = (rules.at(&path), rules.allows_stat(&path), rules.allows_mkdir(&path), rules.deciding(&path));
            let _ = rules.allows_rename(&path, &other, true, true);
        }
    }
}

mod network {
    use super::*;

    #[test]
    fn a_network_holds_the_addresses_of_its_first_bits() {
        for (network, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "255.1.2.3", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("::ffff:10.0.0.0/104", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::ffff:11.1.2.3"),
            ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ] {
            let cidr: Cidr = network.parse().unwrap();
            assert!(cidr.contains(address(inside)), "{network} {inside}");
            assert!(!cidr.contains(address(outside)), "{network} {outside}");
            assert_eq!(cidr.to_string().parse(), Ok(cidr));
        }
    }

    #[test]
    fn what_is_no_network_is_refused_and_a_slip_is_named() {
        for bad in [
            "",
            "x",
            "1.2.3",
            "1.2.3.4/33",
            "::/129",
            "1.2.3.4/",
            "1.2.3.4/+8",
            "10.0.0.0/08",
            "10.0.0.0/8/8",
            "::ffff:0:0/90",
            "::ffff:1.2.3.4/200",
            "1.2.3.4/999",
            " ::1",
        ] {
            assert_eq!(bad.parse::<Cidr>(), Err(CidrError::Form), "{bad}");
        }
        let slip = "10.1.2.3/8".parse::<Cidr>().unwrap_err();
        assert!(slip.to_string().contains("10.0.0.0/8 is meant"), "{slip}");
        assert!("2001:db8::1/32".parse::<Cidr>().is_err());
    }

    #[test]
    fn the_network_around_an_address_loses_its_end() {
        let around = |text: &str, bits| Cidr::around(address(text), bits).map(|cidr| cidr.to_string());
        assert_eq!(around("2001:db8:1:2:3::4", 64).as_deref(), Some("2001:db8:1:2::/64"));
        assert_eq!(around("10.1.2.3", 8).as_deref(), Some("10.0.0.0/8"));
        assert_eq!(around("10.1.2.3", 33), None);
        assert_eq!(around("::1", 0).as_deref(), Some("::/0"));
    }

    #[test]
    fn lists_are_read_from_a_line_and_from_json() {
        let networks: Networks = "10.0.0.0/8, ::1".parse().unwrap();
        assert!(networks.contains(address("10.9.9.9")) && networks.contains(address("::1")));
        assert!(!networks.contains(address("192.0.2.1")) && !Networks::default().contains(address("::1")));
        let json = serde_json::to_string(&networks).unwrap();
        assert_eq!(json, r#"["10.0.0.0/8","::1/128"]"#);
        assert_eq!(serde_json::from_str::<Networks>(&json).unwrap(), networks);
        assert!(serde_json::from_str::<Networks>(r#"["10.0.0.1/8"]"#).is_err());
        assert!("10.0.0.0/8,".parse::<Networks>().is_err());
    }

    proptest! {
        #[test]
        fn an_address_is_in_every_network_around_it(bytes: [u8; 16], v4: [u8; 4], bits in 0u8..=128) {
            for address in [IpAddr::from(bytes), IpAddr::from(v4)] {
                if let Some(network) = Cidr::around(address, bits) {
                    prop_assert!(network.contains(address));
                    prop_assert_eq!(network.to_string().parse(), Ok(network));
                }
            }
        }
    }
}

mod login {
    use super::*;

    #[test]
    fn of_two_limits_the_smaller_counts() {
        let some = LoginRules {
            paths: PathRules::everything().read_only(),
            connections: Some(4),
            bandwidth: None,
            quota: Some(10),
            until: Some(1_000),
        };
        let other = LoginRules {
            connections: Some(2),
            bandwidth: Some(5),
            quota: Some(20),
            until: None,
            ..LoginRules::unlimited()
        };
        let both = some.and(&other);
        assert_eq!(
            (both.connections, both.bandwidth, both.quota, both.until),
            (Some(2), Some(5), Some(10), Some(1_000))
        );
        assert_eq!(both.paths.at(b"/x"), READ);
        assert_eq!(both, other.and(&some));
        assert!(both.is_over(1_000) && !both.is_over(999) && !LoginRules::unlimited().is_over(i64::MAX));
        let json = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<LoginRules>(&json).unwrap(), both);
    }
}
