use super::*;
use crate::fault::FaultCode;
use crate::progress::Verification;
use crate::task::ItemKind;

fn subject(source: &[u8], destination: &[u8]) -> Subject {
    Subject { kind: ItemKind::File, source: source.into(), destination: destination.into(), extra: false }
}

#[test]
fn messages_survive_json_with_any_bytes_in_paths() {
    let lease = Lease { task: Uuid::from_u128(7), epoch: 2 };
    let report = Report {
        lease,
        sequence: 1,
        changes: vec![
            Change::Found { subject: subject(b"/s/\xff", b"/d/\xff"), size: Some(3) },
            Change::Done { subject: subject(b"/s", b"/d"), bytes: 3, verification: Verification::by("md5") },
            Change::Failed { subject: subject(b"/s2", b""), fault: Fault::new(FaultCode::NotFound, "open") },
        ],
        occurrences: vec![Occurrence::Started { concurrency: 2, parallelism: 4, pipelining: 20 }],
        gauge: Some(Gauge { bytes_in_flight: 5, rate: 1.5 }),
        end: Some(End::Again { fault: Fault::new(FaultCode::ConnectionLost, "log in"), after: 2.0 }),
    };
    let text = serde_json::to_string(&Request::Report(Box::new(report))).expect("JSON can carry it");
    let back: Request = serde_json::from_str(&text).expect("it was just written");
    assert_eq!(serde_json::to_string(&back).expect("JSON can carry it"), text);
    let finished = Response::Finished { keys: vec![Uuid::max(), Uuid::nil()], failed: vec![Uuid::nil()], next: 9 };
    let text = serde_json::to_string(&finished).expect("JSON can carry it");
    let back: Response = serde_json::from_str(&text).expect("it was just written");
    let Response::Finished { keys, failed, .. } = back else { panic!() };
    assert_eq!((keys, failed), (vec![Uuid::max(), Uuid::nil()], vec![Uuid::nil()]));
}

#[test]
fn items_are_told_apart_by_where_they_go() {
    assert_eq!(key(&subject(b"/a", b"/d")), key(&subject(b"/b", b"/d")));
    assert_ne!(key(&subject(b"/a", b"/d")), key(&subject(b"/a", b"/e")));
    let extra = Subject { extra: true, ..subject(b"", b"/d") };
    assert_ne!(key(&extra), key(&subject(b"/a", b"/d")));
}

#[test]
fn no_secret_is_ever_printed() {
    let credential = Credential::Token { token: "secret".into() };
    assert!(!format!("{credential:?}").contains("secret"));
}
