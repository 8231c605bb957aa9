//! Prints `docs/reference/faults.md`; `cargo xtask docs` writes it.

fn main() {
    print!("{}", whimbrel_engine::fault::catalogue_markdown());
}
