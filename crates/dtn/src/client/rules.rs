//! What the administrators of the ends decide about files in chunks.

use std::cell::RefCell;
use std::collections::HashMap;

use whimbrel_engine::Fault;
use whimbrel_engine::auto::Imposed;
use whimbrel_proto::policy::{self, Policy, Rule};

use super::remote::Remote;
use super::shared::Route;
use super::target::{Address, Target};

/// The rules that servers have told.
#[derive(Debug, Default)]
pub struct Rules {
    known: RefCell<HashMap<Address, Vec<Rule>>>,
}

/// A decision, and the rule that it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decision {
    /// For the planner.
    pub imposed: Imposed,
    /// Where it counts, for people.
    pub below: String,
}

impl Rules {
    /// Asks a server for its rules, once for each.
    ///
    /// # Errors
    /// The session is over, or the rules cannot be read.
    pub async fn learn(&self, remote: &mut Remote) -> Result<(), Fault> {
        let address = remote.target.address();
        if !self.known.borrow().contains_key(&address) {
            let rules = if remote.features.has("POLICY") { remote.policy().await? } else { Vec::new() };
            tracing::debug!(target = %remote.target, ?rules, "an administrator's rules");
            self.known.borrow_mut().insert(address, rules);
        }
        Ok(())
    }

    /// Whether a server was asked; this host has no rules.
    pub fn are_known(&self, target: Option<&Target>) -> bool {
        let known = self.known.borrow();
        target.is_none_or(|target| target.addresses().any(|address| known.contains_key(&address)))
    }

    /// Whether no server has any.
    pub fn is_empty(&self) -> bool {
        self.known.borrow().values().all(Vec::is_empty)
    }

    /// What is decided about a file that goes from the one path to the other; the smaller number, where both ends decide.
    pub fn decide(&self, route: &Route, source: &[u8], destination: &[u8]) -> Option<Decision> {
        let known = self.known.borrow();
        let of_end = |target: &Option<Target>, path: &[u8]| {
            let target = target.as_ref()?;
            // The DTNs of an endpoint serve the same files: the first that has a rule speaks for all.
            let rules = target.addresses().filter_map(|address| Some((address.clone(), known.get(&address)?)));
            let mut found = rules.filter_map(|((host, _), rules)| Some((host, policy::first(rules, path)?)));
            found.next().filter(|(_, rule)| rule.policy != Policy::default())
        };
        let ends = [of_end(&route.source, source), of_end(&route.destination, destination)];
        let found: Vec<_> = ends.into_iter().flatten().collect();
        let decided = found.iter().fold(Policy::default(), |all, (_, rule)| all.and(rule.policy));
        let mut hosts: Vec<&str> = found.iter().map(|(host, _)| host.as_str()).collect();
        hosts.dedup();
        let (_, rule) = found.first()?;
        Some(Decision {
            imposed: Imposed {
                chunk: decided.chunk.map(|bytes| (bytes > 0).then_some(bytes)),
                leaf: decided.leaf,
                sessions: decided.movers.map(|movers| u32::try_from(movers).unwrap_or(u32::MAX)),
                by: match hosts[..] {
                    [one] => format!("the administrator of {one}"),
                    _ => format!("the administrators of {}", hosts.join(" and ")),
                },
            },
            below: String::from_utf8_lossy(&rule.path).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, chunk: Option<u64>, movers: Option<u64>) -> Rule {
        Rule { path: path.into(), policy: Policy { chunk, movers, leaf: None } }
    }

    fn rules(host: &str, rules: Vec<Rule>) -> (Address, Vec<Rule>) {
        ((host.to_owned(), 1), rules)
    }

    #[test]
    fn the_first_rule_of_each_end_counts_and_the_smaller_number_of_both() {
        let all = Rules::default();
        assert!(all.is_empty());
        let source = vec![rule("/free", None, None), rule("/", Some(1 << 20), None)];
        let destination = vec![rule("/in", Some(0), Some(2))];
        all.known.borrow_mut().extend([rules("a", source), rules("b", destination)]);
        assert!(!all.is_empty());
        let end = |host: &str| Some(Target::anonymous(host, 1));
        let route = Route { source: end("a"), destination: end("b") };
        let decide = |from: &str, to: &str| all.decide(&route, from.as_bytes(), to.as_bytes());
        let (both, one) = (decide("/x", "/in/x").unwrap(), decide("/x", "/out").unwrap());
        assert_eq!((both.imposed.chunk, both.imposed.sessions), (Some(None), Some(2)));
        assert_eq!(both.imposed.by, "the administrators of a and b");
        assert_eq!((one.imposed.chunk, &one.imposed.by[..]), (Some(Some(1 << 20)), "the administrator of a"));
        assert_eq!(decide("/free/x", "/out"), None, "a rule that decides nothing is an exception");
        assert_eq!(decide("/free/x", "/in/x").unwrap().below, "/in");
        let home = Route { source: None, destination: None };
        assert_eq!(all.decide(&home, b"/x", b"/in/x"), None, "this host has no rules");
        let cluster = Target { others: vec![("a".into(), 1)], ..Target::anonymous("c", 1) };
        let route = Route { source: Some(cluster), destination: None };
        assert_eq!(all.decide(&route, b"/x", b"/y").unwrap().imposed.by, "the administrator of a");
    }
}
