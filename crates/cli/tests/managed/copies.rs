//! `whimbrel cp --managed` means what `whimbrel cp` means.

use super::endpoints::site;
use super::field::Field;
use super::seat::Seat;

#[test]
fn cp_by_the_service_copies_as_cp_does() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    alpha.write("run7/a", "a");
    alpha.write("one", "1");
    beta.write("archive/there", "");

    // Into a directory that is there, under its own name; else under the name that is given.
    seat.ends(0, &["cp", "--managed", "-r", "alpha data:/run7", "beta data:/archive"]);
    assert_eq!(beta.read("archive/run7/a"), b"a");
    seat.ends(0, &["cp", "--managed", "-r", "alpha data:/run7", "beta data:/other"]);
    assert_eq!(beta.read("other/a"), b"a");
    let (_, said) = seat.ends(0, &["cp", "--managed", "alpha data:/one", "beta data:/archive/"]);
    assert!(said.contains("succeeded"), "{said}");
    assert_eq!(beta.read("archive/one"), b"1");

    alpha.write("run7/a", "changed");
    seat.ends(
        0,
        &["cp", "--managed", "-r", "--sync", "size", "--label", "again", "alpha data:/run7", "beta data:/archive"],
    );
    assert_eq!(beta.read("archive/run7/a"), b"changed");
    assert!(seat.says(&["task", "list", "--label", "again"]).contains("1 of 1 files copied"));

    seat.ends(1, &["cp", "--managed", "alpha data:/run7", "beta data:/not/a/folder"]);
    let task = seat.says(&["cp", "--managed", "--no-wait", "alpha data:/one", "beta data:/later"]);
    seat.ends(0, &["task", "wait", &task]);
    assert_eq!(beta.read("later"), b"1");
    let events = seat.events(0, &["cp", "--managed", "alpha data:/one", "beta data:/json"]);
    assert_eq!((&events[0]["event"], &events.last().unwrap()["status"]), (&"submitted".into(), &"SUCCEEDED".into()));

    seat.ends(2, &["cp", "--managed", "alpha data:/*", "beta data:/archive"]);
    seat.ends(2, &["cp", "--managed", "--offset", "1", "alpha data:/one", "beta data:/archive"]);
    seat.ends(2, &["cp", "--managed", "one", "beta data:/archive"]);
    seat.ends(2, &["cp", "--no-wait", "one", "two"]);
}
