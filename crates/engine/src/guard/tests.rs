use std::net::IpAddr;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn an_ipv6_host_is_its_64_and_a_mapped_address_is_ipv4() {
    let network = |text| Network::from(address(text));
    assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::9"));
    assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
}

#[test]
fn lines_about_strangers_are_few_and_tell_of_the_others() {
    let mut budget = LineBudget::new(LineBudgetLimits { most: 2, interval: seconds(10) });
    let start = Instant::now();
    let asked: Vec<_> = (0..5).map(|at| budget.ask(start + seconds(at))).collect();
    assert_eq!(asked, [Some(0), Some(0), None, None, None]);
    assert_eq!(budget.ask(start + seconds(10)), Some(3));
    assert_eq!(budget.ask(start + seconds(11)), Some(0));
    assert_eq!(budget.ask(start + seconds(11)), None);
}

#[test]
fn who_is_known_comes_in_past_those_who_flood_the_door() {
    let limits =
        DoorLimits { all: 9, waiting_per_network: 3, waiting_start: 2, waiting_full: 4, ..DoorLimits::default() };
    let (mut doors, mut throttle, now) = (Doors::new(limits), Throttle::new(ThrottleLimits::default()), Instant::now());
    throttle.succeeded(address("198.51.100.7"), "alice", now);
    assert!(throttle.knows(address("198.51.100.7"), now) && !throttle.knows(address("192.0.2.1"), now));
    assert!(!throttle.knows(address("198.51.100.7"), now + seconds(31 * 3600)), "nobody is known for ever");
    for host in 0..4_u8 {
        doors.enter(IpAddr::from([192, 0, 2, host]), 999).unwrap();
    }
    assert_eq!(doors.enter(address("198.51.100.7"), 999), Err(Refusal::Dice));
    for _ in 0..3 {
        doors.enter_known(address("198.51.100.7")).unwrap();
    }
    assert_eq!(doors.enter_known(address("198.51.100.7")), Err(Refusal::Waiting), "but not without end");
}

mod pace {
    use super::*;

    #[test]
    fn a_network_comes_so_many_times_at_once_and_then_after_its_share_of_a_minute() {
        let (start, mut pace) = (Instant::now(), Pace::new(Some(6)));
        let come = |pace: &mut Pace, from: &str, at| pace.ask(address(from), start + seconds(at));
        assert_eq!((0..8).filter(|_| come(&mut pace, "192.0.2.1", 0)).count(), 6);
        assert!(come(&mut pace, "192.0.2.2", 0), "others come as before");
        assert!(!come(&mut pace, "192.0.2.1", 9) && come(&mut pace, "192.0.2.1", 10));
        assert!(!come(&mut pace, "192.0.2.1", 19), "those who were refused have cost nothing, the others have");
        assert_eq!(pace.remembered(), 1, "who came once is forgotten after a share of the minute");
        assert_eq!((0..8).filter(|_| come(&mut pace, "192.0.2.1", 200)).count(), 6, "a minute later all is forgotten");
        assert_eq!(pace.remembered(), 1);
    }

    #[test]
    fn without_a_limit_nothing_is_remembered_and_with_one_not_without_end() {
        let (now, mut pace) = (Instant::now(), Pace::new(None));
        assert!((0..1000).all(|_| pace.ask(address("192.0.2.1"), now)) && pace.remembered() == 0);
        let mut pace = Pace::new(Some(0));
        for number in 0..70_000_u32 {
            let from = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            assert!(pace.ask(from, now) && !pace.ask(from, now), "none is one");
        }
        assert_eq!(pace.remembered(), 1 << 16);
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_twice_the_limit(gaps in proptest::collection::vec(0_u64..20_000, 1..200), most in 1_u32..40) {
            let (start, mut pace, mut at) = (Instant::now(), Pace::new(Some(most)), Duration::ZERO);
            let mut came = Vec::new();
            for gap in gaps {
                at += Duration::from_millis(gap);
                if pace.ask(address("192.0.2.1"), start + at) { came.push(at) }
            }
            for first in &came {
                let within = came.iter().filter(|at| (*first..*first + seconds(60)).contains(at)).count();
                prop_assert!(within <= 2 * most as usize, "{within}");
            }
        }
    }
}

mod throttle {
    use super::*;

    const BAD: &str = "192.0.2.66";
    const HOME: &str = "198.51.100.7";

    fn throttle() -> Throttle {
        Throttle::new(ThrottleLimits::default())
    }

    /// Bad logins in a row, each as soon as it may be; the waits after each.
    fn row(
        throttle: &mut Throttle,
        from: &str,
        user: Option<&str>,
        count: usize,
        start: Instant,
    ) -> (Vec<u64>, Instant) {
        let mut now = start;
        let waits = (0..count).map(|_| {
            let wait = throttle.failed(address(from), user, now);
            now += wait;
            wait.as_secs()
        });
        let waits = waits.collect();
        (waits, now)
    }

    #[test]
    fn waits_grow_with_every_bad_login_and_have_an_end() {
        let mut throttle = throttle();
        let (waits, now) = row(&mut throttle, BAD, None, 16, Instant::now());
        assert_eq!(waits, [0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]);
        assert_eq!(throttle.wait(address(BAD), None, now), Duration::ZERO);
        assert_eq!(throttle.wait(address(HOME), Some("alice"), now), Duration::ZERO, "others do not wait");
        let later = now + seconds(3600);
        assert_eq!(throttle.failed(address(BAD), None, later), Duration::ZERO, "after an hour it is forgotten");
    }

    #[test]
    fn the_wait_runs_down() {
        let mut throttle = throttle();
        let start = Instant::now();
        for _ in 0..6 {
            throttle.failed(address(BAD), None, start);
        }
        assert_eq!(throttle.wait(address(BAD), None, start), seconds(4));
        assert_eq!(throttle.wait(address(BAD), None, start + seconds(3)), seconds(1));
        assert_eq!(throttle.wait(address(BAD), None, start + seconds(5)), Duration::ZERO);
    }

    #[test]
    fn a_64_of_ipv6_is_one_stranger() {
        let mut throttle = throttle();
        let start = Instant::now();
        for host in 0..5 {
            throttle.failed(address(&format!("2001:db8:0:1::{host}")), None, start);
        }
        assert_eq!(throttle.wait(address("2001:db8:0:1:abcd::"), None, start), seconds(2));
        assert_eq!(throttle.wait(address("2001:db8:0:2::1"), None, start), Duration::ZERO);
    }

    #[test]
    fn guesses_from_everywhere_slow_an_account_but_not_its_user() {
        let mut throttle = throttle();
        let start = Instant::now();
        throttle.succeeded(address(HOME), "alice", start);
        for host in 0..200 {
            throttle.failed(address(&format!("203.0.113.{host}")), Some("alice"), start);
        }
        let stranger = address("192.0.2.200");
        assert_eq!(throttle.wait(stranger, Some("alice"), start), seconds(10));
        assert_eq!(throttle.wait(stranger, Some("bob"), start), Duration::ZERO);
        assert_eq!(throttle.wait(stranger, None, start), Duration::ZERO);
        assert_eq!(throttle.wait(address(HOME), Some("alice"), start), Duration::ZERO, "she is known there");
        throttle.succeeded(address(HOME), "alice", start);
        assert_eq!(throttle.wait(stranger, Some("alice"), start), Duration::ZERO);
    }

    #[test]
    fn an_account_of_ones_own_buys_no_guesses_at_others() {
        let mut throttle = throttle();
        let (_, mut now) = row(&mut throttle, BAD, Some("alice"), 6, Instant::now());
        for expected in [8, 16, 32] {
            throttle.succeeded(address(BAD), "mallory", now);
            assert_eq!(throttle.failed(address(BAD), Some("alice"), now), seconds(expected));
            now += seconds(expected);
        }
        assert_eq!(throttle.wait(address(BAD), Some("mallory"), now), Duration::ZERO);
    }

    #[test]
    fn strangers_behind_the_same_address_lock_no_known_user_out() {
        let mut throttle = throttle();
        let start = Instant::now();
        throttle.succeeded(address(BAD), "alice", start);
        let (_, now) = row(&mut throttle, BAD, Some("bob"), 10, start);
        throttle.failed(address(BAD), Some("bob"), now);
        assert_eq!(throttle.wait(address(BAD), Some("alice"), now), Duration::ZERO);
        assert_eq!(throttle.wait(address(BAD), Some("carol"), now), seconds(128), "whom nobody knows there");
        // Guesses at her from there are paid for as well.
        let (waits, now) = row(&mut throttle, BAD, Some("alice"), 6, now);
        assert_eq!(waits, [0, 0, 0, 1, 2, 4]);
        throttle.succeeded(address(BAD), "alice", now);
        assert_eq!(throttle.failed(address(BAD), Some("alice"), now), Duration::ZERO);
    }

    #[test]
    fn guesses_from_everywhere_are_not_forgiven_by_a_login_from_a_new_place() {
        let mut throttle = throttle();
        let start = Instant::now();
        for host in 0..10 {
            throttle.failed(address(&format!("203.0.113.{host}")), Some("alice"), start);
        }
        throttle.succeeded(address(HOME), "alice", start);
        assert_eq!(throttle.wait(address(BAD), Some("alice"), start), seconds(10));
        assert_eq!(throttle.wait(address(HOME), Some("alice"), start), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let mut throttle = Throttle::new(ThrottleLimits { most: 100, ..ThrottleLimits::default() });
        let start = Instant::now();
        for host in 0..1000_u32 {
            let from = IpAddr::from(host.to_be_bytes());
            let user = format!("{}{host}", "x".repeat(60));
            throttle.failed(from, Some(&user), start + Duration::from_millis(host.into()));
            throttle.succeeded(IpAddr::from((host + 5000).to_be_bytes()), &user, start);
        }
        let (networks, users, seen) = throttle.remembered();
        assert!(networks <= 100 && users <= 100 && seen <= 100, "{networks} {users} {seen}");
        let now = start + seconds(2);
        for _ in 0..3 {
            throttle.failed(IpAddr::from(999_u32.to_be_bytes()), None, now);
            throttle.failed(IpAddr::from(1_u32.to_be_bytes()), None, now);
        }
        assert_eq!(throttle.wait(IpAddr::from(999_u32.to_be_bytes()), None, now), seconds(1), "four bad logins");
        assert_eq!(
            throttle.wait(IpAddr::from(1_u32.to_be_bytes()), None, now),
            Duration::ZERO,
            "the first was forgotten"
        );
        throttle.wait(address(HOME), None, now + seconds(3600 * 30));
        assert_eq!(throttle.remembered(), (0, 0, 0));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut throttle = throttle();
        let now = Instant::now();
        for _ in 0..4 {
            throttle.failed(address(BAD), Some(&"\u{20ac}".repeat(100)), now);
        }
        assert_eq!(throttle.wait(address(HOME), Some(&"\u{20ac}".repeat(21)), now), seconds(1));
    }
}

mod doors {
    use super::*;

    fn limits() -> DoorLimits {
        let usual = DoorLimits::default();
        DoorLimits { all: 20, per_network: 6, waiting_per_network: 3, waiting_start: 8, waiting_full: 12, ..usual }
    }

    fn host(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn a_network_has_few_connections_before_login_and_more_after() {
        let mut doors = Doors::new(limits());
        let first: Vec<_> = (0..3).map(|_| doors.enter(host(1), 0).unwrap()).collect();
        assert_eq!(doors.enter(host(1), 0), Err(Refusal::Waiting));
        assert!(doors.enter(host(2), 0).is_ok(), "others are let in");
        for visitor in &first {
            doors.log_in(*visitor, "alice", None).unwrap();
        }
        assert_eq!((doors.count(), doors.of_user("alice")), ((4, 1), 3));
        for _ in 0..3 {
            doors.enter(host(1), 0).unwrap();
        }
        assert_eq!(doors.enter(host(1), 0), Err(Refusal::Network));
        doors.leave(first[0]);
        assert_eq!(doors.enter(host(1), 0), Err(Refusal::Waiting));
        doors.leave(first[0]);
        assert_eq!(doors.count(), (6, 4), "nobody leaves twice");
    }

    #[test]
    fn an_account_has_as_many_as_it_may_have() {
        let mut doors = Doors::new(limits());
        let visitors: Vec<_> = (1..=3).map(|from| doors.enter(host(from), 0).unwrap()).collect();
        assert_eq!(doors.log_in(visitors[0], "alice", Some(2)), Ok(()));
        assert_eq!(doors.log_in(visitors[0], "alice", Some(1)), Ok(()), "again");
        assert_eq!(doors.log_in(visitors[1], "alice", Some(2)), Ok(()));
        assert_eq!(doors.log_in(visitors[2], "alice", Some(2)), Err(Refusal::User));
        assert_eq!(doors.log_in(visitors[2], "bob", Some(2)), Ok(()));
        assert_eq!(doors.log_in(visitors[1], "bob", Some(2)), Ok(()), "as somebody else");
        assert_eq!((doors.of_user("alice"), doors.of_user("bob"), doors.count()), (1, 2, (3, 0)));
        doors.log_out(visitors[0]);
        assert_eq!((doors.of_user("alice"), doors.count()), (0, (3, 1)));
        doors.leave(visitors[1]);
        doors.leave(visitors[2]);
        assert_eq!((doors.of_user("bob"), doors.count()), (0, (1, 1)));
        assert_eq!(doors.log_in(visitors[2], "bob", None), Ok(()), "gone already");
        assert_eq!(doors.of_user("bob"), 0);
    }

    #[test]
    fn the_fuller_the_waiting_room_the_likelier_a_refusal() {
        let mut doors = Doors::new(limits());
        let (mut lowest, mut number) = (Vec::new(), 0);
        while doors.count().1 < 12 {
            number += 1;
            let refused = (0..1000).filter(|&dice| doors.drops(dice)).count();
            lowest.push(refused);
            doors.enter(host(number), 999).unwrap();
        }
        assert_eq!(lowest, [0, 0, 0, 0, 0, 0, 0, 0, 100, 325, 550, 775]);
        assert_eq!(doors.enter(host(99), 999), Err(Refusal::Dice));
        doors.set_limits(DoorLimits { waiting_full: 13, waiting_start: 13, ..limits() });
        assert!(doors.enter(host(99), 0).is_ok());
        doors.set_limits(DoorLimits { waiting_full: 13, all: 13, ..limits() });
        assert_eq!(doors.enter(host(98), 0), Err(Refusal::Full));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_who_is_there(acts in proptest::collection::vec((0u8..5, 0u8..4, any::<u32>()), 0..120)) {
            let mut doors = Doors::new(limits());
            let mut there: Vec<(Visitor, u8, Option<u8>)> = Vec::new();
            for (act, number, dice) in acts {
                let place = if there.is_empty() { 0 } else { dice as usize % there.len() };
                match act {
                    0 | 1 => if let Ok(visitor) = doors.enter(host(number), dice) { there.push((visitor, number, None)) },
                    _ if there.is_empty() => {}
                    2 => {
                        let most = Some(2);
                        if doors.log_in(there[place].0, &number.to_string(), most).is_ok() { there[place].2 = Some(number) }
                    }
                    3 => { doors.log_out(there[place].0); there[place].2 = None }
                    _ => doors.leave(there.swap_remove(place).0),
                }
                let waiting = there.iter().filter(|(_, _, user)| user.is_none()).count();
                prop_assert_eq!(doors.count(), (there.len(), waiting));
                for user in 0..4 {
                    let expected = there.iter().filter(|(_, _, of)| *of == Some(user)).count();
                    prop_assert_eq!(doors.of_user(&user.to_string()) as usize, expected);
                    prop_assert!(expected <= 2);
                    prop_assert!(there.iter().filter(|(_, from, _)| *from == user).count() <= 6);
                }
            }
            for (visitor, ..) in there { doors.leave(visitor) }
            prop_assert_eq!(doors.count(), (0, 0));
            prop_assert_eq!(doors.remembered(), (0, 0), "nothing is left of them");
        }
    }
}

mod slow {
    use super::*;

    const LIMITS: LineLimits =
        LineLimits { grace: Duration::from_secs(20), bytes_per_second: 1024, handshake: Duration::from_secs(30) };

    #[test]
    fn a_byte_now_and_then_is_no_line() {
        let start = Instant::now();
        let mut line = SlowLine::default();
        assert_eq!(line.deadline(&LIMITS), None, "silence is another limit's");
        for byte in 0..2 {
            line.fed(byte + 1, false, start + seconds(15 * byte as u64));
            assert!(!line.is_too_slow(&LIMITS, start + seconds(15 * byte as u64)));
        }
        assert!(line.is_too_slow(&LIMITS, start + seconds(21)));
        line.fed(0, true, start + seconds(30));
        assert!(!line.is_too_slow(&LIMITS, start + seconds(10_000)));
    }

    #[test]
    fn the_next_line_has_its_own_time() {
        let start = Instant::now();
        let mut line = SlowLine::default();
        line.fed(5, false, start);
        line.fed(3, true, start + seconds(19));
        assert_eq!(line.deadline(&LIMITS), Some(start + seconds(39) + seconds(3) / 1024));
    }

    #[test]
    fn long_lines_have_time_for_their_bytes() {
        let start = Instant::now();
        let mut line = SlowLine::default();
        line.fed(64 << 10, false, start);
        assert_eq!(line.deadline(&LIMITS), Some(start + seconds(84)));
        line.fed(usize::MAX, false, start);
        assert!(line.deadline(&LineLimits { bytes_per_second: 0, ..LIMITS }).is_some());
    }
}
