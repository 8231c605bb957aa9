//! Writes the seeds of the fuzz targets to their corpus folders, in place of those that are there.

use std::path::Path;
use std::{fs, io};

use whimbrel_testkit::fuzz::TARGETS;
use whimbrel_testkit::fuzz::seeds::{PREFIX, seeds};

fn main() -> io::Result<()> {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, _) in TARGETS {
        let folder = corpora.join(target);
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)) {
                fs::remove_file(path)?;
            }
        }
        let seeds = seeds(target);
        println!("{target}: {} seeds", seeds.len());
        for (name, bytes) in seeds {
            fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
