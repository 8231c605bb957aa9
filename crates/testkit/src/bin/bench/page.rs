//! `docs/reference/performance.md`: sections are replaced as they are measured, the others stay.

use std::fs;
use std::path::Path;

use crate::machine::Machine;
use crate::options::Section;
use crate::{Measured, Outcome, report};

const HEAD: &str = "\
# Performance, side by side with the peers

Written by `cargo xtask bench --write`; `--json FILE` keeps every sample. Contenders take turns in one run, after a round
to warm up in which memory is observed; a claim is the median of the ratios of the rounds, and the other figures are
there for orientation. Rows of one table compare with each other, not with those of another: the machine is shared, and
its load changes. All servers run in anonymous mode and handle data as `nobody`. Time is that of the whole command, from
its start to its exit. Processor time is user and system time of the client and of both servers' process trees. Where
whimbrel is slower than a peer, the verdict says **behind**.
";

/// How a section's text begins; it ends at the next.
fn marker(section: Section) -> String {
    format!("<!-- section {} -->\n", section.name())
}

/// Puts a section into the page, unless nothing of it could be measured.
pub fn update(file: &Path, machine: &Machine, done: &Measured) -> Outcome<()> {
    if done.cases.is_empty() {
        return Ok(());
    }
    let old = fs::read_to_string(file).unwrap_or_default();
    let text = format!("{}\n{machine}\n", report::section(done));
    Ok(fs::write(file, merge(&old, &[(done.section, text)]))?)
}

fn merge(old: &str, new: &[(Section, String)]) -> String {
    let mut page = HEAD.to_owned();
    for section in Section::ALL {
        let found = new.iter().find(|(measured, _)| *measured == section).map(|(_, text)| text.as_str());
        if let Some(text) = found.or_else(|| kept(old, section)) {
            page += &format!("\n{}\n{}\n", marker(section), text.trim());
        }
    }
    page
}

fn kept(old: &str, section: Section) -> Option<&str> {
    let text = old.split_once(&marker(section))?.1;
    Some(text.split("<!-- section ").next().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_section_replaces_its_old_text_and_nothing_else() {
        let first = merge("", &[(Section::Wan, "## far".into()), (Section::Mem, "## near".into())]);
        assert!(first.find("## near") < first.find("## far"));
        let second = merge(&first, &[(Section::Mem, "## nearer".into())]);
        assert!(second.contains("## nearer\n") && second.contains("## far\n") && !second.contains("## near\n"));
        assert_eq!(merge(&second, &[]), second, "writing again changes nothing");
    }
}
