//! `whimbrel audit`: who did what, told to administrators and exported.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::endpoints::site;
use super::field::Field;
use super::logins::{anna, log_in_by_browser};
use super::seat::Seat;

fn actions(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["action"].as_str().unwrap()).collect()
}

#[test]
fn who_did_what_is_told_to_administrators_and_exported_without_gaps() {
    let field = Field::plain();
    let (anna, id) = anna(&field);
    log_in_by_browser(&anna);
    let seat = Seat::administrator(&field);
    let (client, authorities) = ("service/administrator.json", "service/certificate.pem");
    let [client, authorities] = [client, authorities].map(|name| field.place(name).display().to_string());
    let one = site(&seat, "one");
    one.write("run/a", "1");
    let task = anna.says(&["task", "submit", "--wait", "one data:/run/a", "one data:/run/b"]);
    let rule = seat.says(&["rule", "slow", "1000", "--at", "one data"]);
    let known: Value = serde_json::from_slice(&std::fs::read(&client).unwrap()).unwrap();
    let wrong = json!({"client_id": known["client_id"], "client_secret": "ws_guessed"}).to_string();
    let (file, guest) = (field.secret("wrong.json", &wrong), Seat::new(&field, "guest"));
    let file = file.display().to_string();
    guest.ends(6, &["login", &field.url, "--client", &file, "--authorities", &authorities]);

    let events = seat.events(0, &["audit"]);
    let find = |action: &str, subject: &str| {
        let fits = |event: &&Value| event["action"] == action && event["subject"] == subject;
        events.iter().find(fits).unwrap_or_else(|| panic!("no {action} of {subject} in {events:#?}"))
    };
    let submitted = find("task.submit", &task);
    assert_eq!((&submitted["actor"], &submitted["actor_name"]), (&json!(id), &json!("anna@example.org")));
    assert_eq!(submitted["detail"]["source"], json!(one.collection));
    assert_eq!(find("rate_rule.create", &rule)["detail"]["max_rate"], json!(1000));
    assert_eq!(find("client.refused", known["client_id"].as_str().unwrap())["actor"], json!("nobody"));
    assert_eq!(events.iter().filter(|event| event["action"] == "login" && event["actor"] == json!(id)).count(), 1);
    let text = serde_json::to_string(&events).unwrap();
    assert!(!text.contains("ws_") && !text.contains("wr_") && !text.contains("wa_"), "{text}");

    // For people: the newest, with names.
    let shown = seat.says(&["audit", "--actor", "anna@example.org", "--action", "task."]);
    assert!(shown.contains("anna@example.org  task.submit") && shown.contains(&task), "{shown}");
    assert_eq!(shown.lines().count(), 1, "{shown}");
    let shown = seat.says(&["audit", "-n", "2"]);
    assert!(shown.lines().count() == 2 && shown.lines().last().unwrap().contains("audit.read"), "{shown}");
    assert_eq!(seat.says(&["audit", "--until", "2001-01-01"]), "");

    // An exporter goes on where it ended: nothing is missed, nothing comes twice.
    let marks = |events: &[Value]| events.iter().map(|event| event["mark"].as_u64().unwrap()).collect::<Vec<_>>();
    let (mut exported, mut mark) = (Vec::new(), 0);
    while mark < *marks(&events).last().unwrap() {
        let part = seat.events(0, &["audit", "--after", &mark.to_string(), "--limit", "5"]);
        assert_eq!(part.len(), 5);
        mark = *marks(&part).last().unwrap();
        exported.extend(part);
    }
    seat.ends(0, &["rule", "lift", &rule]);
    exported.extend(seat.events(0, &["audit", "--after", &mark.to_string()]));
    assert_eq!(exported[..events.len()], events);
    assert!(actions(&exported).contains(&"rate_rule.delete"));
    let all = marks(&exported);
    assert!(all.is_sorted() && all.iter().collect::<BTreeSet<_>>().len() == all.len());

    anna.ends(6, &["audit"]);
    seat.ends(2, &["audit", "--since", "soon"]);
    seat.ends(2, &["audit", "--action", "Role"]);
    seat.ends(1, &["audit", "--actor", "nobody@elsewhere.example.org"]);
}
