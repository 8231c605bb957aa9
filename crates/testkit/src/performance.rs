//! `docs/reference/performance.md`: programs that measure replace their sections, the others stay.

use std::fs;
use std::io;
use std::path::PathBuf;

const HEAD: &str = "\
# Performance, side by side with the peers

Written by `cargo xtask bench --write`; `--json FILE` keeps every sample. Contenders take turns in one run, after a round
to warm up in which memory is observed; a claim is the median of the ratios of the rounds, and the other figures are
there for orientation. Rows of one table compare with each other, not with those of another: the machine is shared, and
its load changes. All servers run in anonymous mode and handle data as `nobody`. Time is that of the whole command, from
its start to its exit. Processor time is user and system time of the client and of both servers' process trees. Where
whimbrel is slower than a peer, the verdict says **behind**.
";

/// Its sections in their order; those of other names stand behind them.
const ORDER: [&str; 9] = ["mem", "file", "small", "encrypted", "wan", "path", "neighbour", "managed", "load"];

/// Puts a section into the page, in the source tree that this program was built from.
///
/// # Errors
/// The page cannot be read, or written.
pub fn update(section: &str, text: &str) -> io::Result<()> {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/performance.md"));
    let old = fs::read_to_string(&file)?;
    fs::write(file, merge(&old, section, text))
}

fn merge(old: &str, section: &str, text: &str) -> String {
    let mut sections: Vec<(&str, &str)> =
        old.split(MARK).skip(1).filter_map(|part| part.split_once(" -->\n")).collect();
    sections.retain(|(name, _)| *name != section);
    sections.push((section, text));
    let place = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
    sections.sort_by_key(|(name, _)| place(name));
    let texts = sections.iter().map(|(name, text)| format!("\n{MARK}{name} -->\n\n{}\n", text.trim()));
    HEAD.to_owned() + &texts.collect::<String>()
}

/// How a section begins; it ends at the next.
const MARK: &str = "<!-- section ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_section_replaces_its_old_text_and_nothing_else() {
        let first = merge(&merge(&merge("", "wan", "## far"), "by hand", "## kept"), "mem", "## near");
        assert!(first.find("## near") < first.find("## far") && first.find("## far") < first.find("## kept"));
        let second = merge(&first, "mem", "## nearer");
        assert!(second.contains("## nearer\n") && second.contains("## far\n") && !second.contains("## near\n"));
        assert_eq!(merge(&second, "wan", "## far"), second, "writing again changes nothing");
    }
}
