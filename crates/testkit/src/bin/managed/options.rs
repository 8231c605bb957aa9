//! The command line.

use crate::Outcome;

/// What `--help` prints.
pub const HELP: &str = "\
usage: managed --measure [PARTS] [--rounds N] [--files N] [--write]
  --measure [PARTS]  some of first,start,many,stock [default: all]
  --rounds N         measured rounds, after one to warm up [default: 30 for first, a third of it for start and stock]
  --files N          files of the large task [default: 20000; the page's figure is that of 1000000]
  --write            replace its section of docs/reference/performance.md; needs all parts and 1000000 files";

/// Files of the task that the page tells of.
pub const PAGE_FILES: u32 = 1_000_000;

const PARTS: [&str; 4] = ["first", "start", "many", "stock"];

/// What is asked for.
#[derive(Debug)]
pub struct Options {
    parts: Vec<String>,
    pub rounds: u32,
    pub files: u32,
    pub write: bool,
}

impl Options {
    /// Understands the arguments; `None` when help is asked for, or nothing.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Outcome<Option<Options>> {
        let mut options = Options { parts: Vec::new(), rounds: 30, files: 20_000, write: false };
        let mut arguments = arguments.peekable();
        if arguments.peek().is_none() {
            return Ok(None);
        }
        while let Some(argument) = arguments.next() {
            let mut number = |name: &str| -> Outcome<u32> {
                let text = arguments.next().ok_or_else(|| format!("{name} needs a number"))?;
                Ok(text.parse().map_err(|_| format!("{name}: {text} is no number"))?)
            };
            match argument.as_str() {
                "--help" | "-h" => return Ok(None),
                "--rounds" => options.rounds = number("--rounds")?.max(3),
                "--files" => options.files = number("--files")?.max(1),
                "--write" => options.write = true,
                "--measure" => {
                    if let Some(parts) = arguments.next_if(|next| !next.starts_with('-')) {
                        options.parts = parts.split(',').map(str::to_owned).collect();
                    }
                }
                other => return Err(format!("{other} is not understood").into()),
            }
        }
        if let Some(part) = options.parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
            return Err(format!("{part} is none of {}", PARTS.join(",")).into());
        }
        if options.write && (!options.parts.is_empty() || options.files != PAGE_FILES) {
            return Err(format!("the page is written with all parts and --files {PAGE_FILES}").into());
        }
        Ok(Some(options))
    }

    /// Whether a part is to be measured.
    pub fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn parts_are_known_and_the_page_is_written_whole_or_not_at_all() {
        let options = parse(&["--measure", "first,many", "--files", "5"]).unwrap().unwrap();
        assert!(options.wants("many") && !options.wants("start") && options.files == 5);
        assert!(parse(&["--measure"]).unwrap().unwrap().wants("start"));
        assert!(parse(&[]).unwrap().is_none());
        for bad in [&["--measure", "nothing"][..], &["--write"], &["--rounds"], &["--rounds", "x"], &["?"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
