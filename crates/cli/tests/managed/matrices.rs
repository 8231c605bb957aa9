//! `whimbrel matrix`: probes between all pairs, with real servers.

use serde_json::{Value, json};

use super::field::Field;
use super::seat::Seat;

const BYTES: usize = 3_000_000;

#[test]
fn every_pair_is_measured_and_shown_as_a_table() {
    let mut field = Field::plain();
    field.alpha = Some(field.site("alpha"));
    field.beta = Some(field.site("beta"));
    let seat = Seat::administrator(&field);
    for site in [field.alpha(), field.beta()] {
        site.write("probe/one", vec![1; BYTES / 2]);
        site.write("probe/two", vec![2; BYTES / 2]);
    }
    let ends = ["alpha data:/probe/", "beta data:/probe/"];
    let id = seat.says(&["matrix", "create", "both ways", "--every", "1h", "--copies", "/copies", ends[0], ends[1]]);
    assert!(seat.says(&["matrix", "list"]).contains(&id));
    let show = || -> Value { seat.events(0, &["matrix", "show", "both ways"]).pop().expect("it is told") };
    let told = loop {
        let told = show();
        if told["cells"].as_array().unwrap().iter().all(|cell| cell["bytes_per_second"].is_u64()) {
            break told;
        }
        assert_ne!(told["state"], "stopped", "{told:#}");
        let failed = |cell: &Value| cell["measurements"][0]["fault"].is_string();
        assert!(!told["cells"].as_array().unwrap().iter().any(failed), "{told:#}");
    };
    for (pair, (from, to)) in [(field.alpha(), field.beta()), (field.beta(), field.alpha())].into_iter().enumerate() {
        let copies = format!("copies/from-{}", from.collection);
        assert_eq!((to.read(&format!("{copies}/one")).len(), to.read(&format!("{copies}/two"))[0]), (BYTES / 2, 2));
        let measured = &told["cells"][pair]["measurements"][0];
        assert_eq!(measured["bytes"], json!(BYTES), "{told:#}");
        let task = seat.events(0, &["task", "show", measured["task_id"].as_str().unwrap()]).pop().unwrap();
        assert_eq!(task["status"], "SUCCEEDED", "{task:#}");
    }
    let table = seat.says(&["matrix", "show", "both ways"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("both ways: ") && lines[1].contains("alpha data  beta data"), "{table}");
    assert!(lines[2].starts_with("alpha data  -") && lines[3].trim_end().ends_with('-'), "{table}");

    let (_, refused) = seat.ends(1, &["matrix", "show", "another"]);
    assert!(refused.contains("another"), "{refused}");
    seat.ends(2, &["matrix", "create", "x", "--every", "1s", ends[0], ends[1]]);
    seat.ends(0, &["matrix", "delete", &id]);
    assert_eq!(seat.says(&["matrix", "list"]), "");
}
