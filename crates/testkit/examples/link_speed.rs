//! Measures what the laboratory's links carry on this machine: one iperf3 stream over a rung of the ladder.
//!
//! `cargo run --release -p whimbrel-testkit --example link_speed -- [RUNG] [cubic|bbr|reno] [SECONDS]`

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use whimbrel_testkit::lab::{Lab, Rung};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |number: usize, default: &str| std::env::args().nth(number).unwrap_or(default.into());
    let rung = Rung::named(&argument(1, "psc-sdsc")).ok_or("no such rung")?;
    let lab = Lab::builder().host("a").host("b").link("a", "b", rung.link()).build()?;
    lab.set_congestion_control_everywhere(&argument(2, "cubic"))?;
    let mut server =
        lab.host("b").command("iperf3").args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped()).spawn()?;
    let ready = BufReader::new(server.stdout.take().ok_or("no output")?).lines().map_while(Result::ok);
    let mut ready = ready.skip_while(|line| !line.contains("listening"));
    ready.next().ok_or("iperf3 does not listen")?;
    let address = lab.host("b").addr().to_string();
    let before = (Instant::now(), lab.link_cpu());
    let status =
        lab.host("a").command("iperf3").args(["-c", &address, "-i", "1", "-t", &argument(3, "10")]).status()?;
    let (wall, cpu) = (before.0.elapsed(), lab.link_cpu() - before.1);
    ready.for_each(drop);
    server.wait()?;
    println!("{rung:?}\n{}", summary(wall, cpu));
    println!("there {:?}\nback  {:?}", lab.direction("a", "b").counters(), lab.direction("b", "a").counters());
    if status.success() { Ok(()) } else { Err("iperf3 failed".into()) }
}

fn summary(wall: Duration, cpu: Duration) -> String {
    let share = cpu.as_secs_f64() / wall.as_secs_f64() * 100.0;
    format!("links' threads: {:.3} s of {:.3} s, {share:.1} % of one core", cpu.as_secs_f64(), wall.as_secs_f64())
}
