//! The network of a server is cut for a minute: the task goes on when it is back, and moves little twice.

use std::fmt::Display;
use std::time::Duration;

use serde_json::json;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::require_root;

use super::field::Field;

const FILES: usize = 40;
/// Bytes of a file; all of them take ten seconds.
const LENGTH: usize = 500_000;
/// Bytes that a server has read and sent. What has arrived tells less: the kernel holds what lost connections were given,
/// and delivers some of it, for nobody, when the network is back.
const SENT: &str = "sent_bytes_total";
const CUT: Duration = Duration::from_secs(60);
/// Longest time in which a task goes on after its network is back: waits have doubled meanwhile, those of TCP, too.
const PATIENCE: Duration = Duration::from_secs(150);

fn content(file: usize) -> Vec<u8> {
    vec![file as u8; LENGTH]
}

/// Asks until the answer is as it has to be.
#[track_caller]
fn until<T: Display>(lab: &Lab, longest: Duration, asked: impl Fn() -> T, fits: impl Fn(&T) -> bool) -> T {
    let begun = lab.now();
    loop {
        let answer = asked();
        if fits(&answer) {
            return answer;
        }
        assert!(lab.now() - begun < longest, "{answer:#}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn a_task_goes_on_after_a_minute_without_a_server() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2)).rate_mbit(16)).expect("laboratory");
    lab.host("client").run(|| go_on(&lab));
}

fn go_on(lab: &Lab) {
    let field = Field::on(lab.host("client"));
    let (alpha, beta) = (field.site_on(lab.host("src"), "alpha"), field.site_on(lab.host("dst"), "beta"));
    for file in 0..FILES {
        alpha.write(&format!("many/f{file}"), content(file));
    }
    let token = field.token();
    let submission = field.ask_with(&token, "/v0.10/submission_id", None).unwrap()["value"].clone();
    let item =
        json!({"DATA_TYPE": "transfer_item", "source_path": "/many", "destination_path": "/copy", "recursive": true});
    let document = json!({
        "DATA_TYPE": "transfer", "submission_id": submission, "verify_checksum": true,
        "source_endpoint": alpha.collection, "destination_endpoint": beta.collection, "DATA": [item],
    });
    let task = field.ask_with(&token, "/v0.10/transfer", Some(&document)).unwrap();
    let path = format!("/v0.10/task/{}", task["task_id"].as_str().unwrap_or_else(|| panic!("{task}")));
    let shown = || field.ask_with(&token, &path, None).unwrap();
    until(lab, PATIENCE, shown, |task| task["files_transferred"].as_u64() > Some(2));

    let ways = [lab.link("client", "dst"), lab.link("src", "dst")];
    ways.iter().for_each(|way| way.cut());
    let cut = lab.now();
    // It is neither lost nor given up, the service answers, and what is wrong is told: when, depends on what was awaited.
    let told = until(lab, CUT + PATIENCE, shown, |task| {
        assert_eq!(task["status"], "ACTIVE", "{task:#}");
        lab.now() - cut > CUT && task["faults"].as_u64() > Some(0)
    });
    let length = lab.now() - cut;
    let (proven, before) = (told["files_transferred"].as_u64().unwrap() as usize, alpha.metric(SENT) as usize);
    ways.iter().for_each(|way| way.restore());
    let ended = until(lab, PATIENCE, shown, |task| task["status"] != "ACTIVE");
    println!(
        "it was cut for {:.1} s, went on and ended {:.0} s later",
        length.as_secs_f64(),
        (lab.now() - cut - length).as_secs_f64()
    );
    let expected = json!(["SUCCEEDED", FILES, FILES * LENGTH]);
    assert_eq!(json!([ended["status"], ended["files"], ended["bytes_transferred"]]), expected, "{ended:#}");
    for file in 0..FILES {
        assert!(beta.read(&format!("copy/f{file}")) == content(file), "file {file}");
    }
    // Of what was proven nothing is read and sent again.
    until(lab, PATIENCE, || alpha.metric("transfers_running"), |running| *running == 0);
    let (again, left) = (alpha.metric(SENT) as usize - before, (FILES - proven) * LENGTH);
    println!("{again} bytes were sent for {left}, {proven} files were proven");
    assert!(again < left + left / 10, "{again} bytes for {left}, {proven} files were proven");
}
