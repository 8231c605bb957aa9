//! What `--explain` says while a copy runs: each thing once, although every event tells everything.

use whimbrel_engine::auto::{Explain, Line};

/// What was said so far.
#[derive(Debug, Default)]
pub struct Said {
    plan: Vec<Line>,
    changes: Vec<Line>,
    bottleneck: String,
}

impl Said {
    /// The lines that are new, without the last line end; empty when nothing is.
    pub fn news(&mut self, explain: &Explain) -> String {
        let plan = explain.plan.iter().filter(|line| !self.plan.contains(line));
        let mut lines: Vec<String> = plan.map(ToString::to_string).collect();
        let seen = overlap(&self.changes, &explain.changes);
        lines.extend(explain.changes[seen..].iter().map(|line| format!("then {line}")));
        let only_bottleneck = Explain { plan: Vec::new(), changes: Vec::new(), ..explain.clone() };
        let bottleneck = only_bottleneck.to_string().trim_end().to_owned();
        if !bottleneck.is_empty() && bottleneck != self.bottleneck {
            lines.push(bottleneck.clone());
        }
        (self.plan, self.changes) = (explain.plan.clone(), explain.changes.clone());
        self.bottleneck = bottleneck;
        lines.join("\n")
    }
}

/// How many of the lines `now` were the last ones before: of many changes only the last are kept.
fn overlap(before: &[Line], now: &[Line]) -> usize {
    let most = before.len().min(now.len());
    (0..=most).rev().find(|count| before.ends_with(&now[..*count])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_engine::auto::{Facts, Figures, plan};
    use whimbrel_engine::tune::Choice;

    fn explain() -> Explain {
        Explain::new(&plan(&Facts::default()))
    }

    fn change(explain: &mut Explain, sessions: u32) {
        explain.changed(&Choice { value: sessions, reason: "faster".into() });
    }

    #[test]
    fn the_plan_is_said_once_and_the_bottleneck_whenever_it_is_known_better() {
        let (mut said, mut explain) = (Said::default(), explain());
        assert_eq!(said.news(&explain), explain.to_string().trim_end());
        assert_eq!(said.news(&explain), "");
        change(&mut explain, 6);
        explain.measured(Figures { network: 0.9, ..Figures::default() });
        let news = said.news(&explain);
        assert!(news.starts_with("then sessions: 6 (faster)\nbottleneck: network 90 %"), "{news}");
        assert_eq!(said.news(&explain), "");
        explain.measured(Figures { network: 0.8, ..Figures::default() });
        let news = said.news(&explain);
        assert!(news.starts_with("bottleneck: network 80 %") && !news.contains("sessions: 6"), "{news}");
    }

    #[test]
    fn changes_are_said_once_even_when_the_oldest_are_forgotten_or_equal() {
        let (mut said, mut explain) = (Said::default(), explain());
        said.news(&explain);
        let mut all = String::new();
        for number in 0..100 {
            change(&mut explain, number % 7);
            all += &said.news(&explain);
            all.push('\n');
        }
        let expected: String = (0..100).map(|number| format!("then sessions: {} (faster)\n", number % 7)).collect();
        assert_eq!(all, expected);
    }
}
