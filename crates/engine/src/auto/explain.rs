//! What was chosen, why, and what held the run back; as text for people and as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::transfer::Chunking;
use crate::tune::Choice;
use crate::units::{ByteCount, ByteRate};

/// What was busy while bytes were moved, each as the share of the time, 0 to 1; 0 where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Senders that run or wait for a processor, where the source has too few; but for hashing.
    #[serde(default)]
    pub source_processor: f64,
    /// Senders reading the source's storage.
    pub source_read: f64,
    /// Senders hashing.
    pub source_hashing: f64,
    /// Both ends waiting for the data connections.
    pub network: f64,
    /// Receivers that run or wait for a processor, where the destination has too few; but for hashing.
    #[serde(default)]
    pub destination_processor: f64,
    /// Receivers writing the destination's storage, or reading it back.
    pub destination_write: f64,
    /// Receivers hashing what they read back.
    pub destination_hashing: f64,
    /// Of the time that senders had something to send, what the receiver's window held back.
    pub window: f64,
    /// The same for their own send buffer.
    pub send_buffer: f64,
    /// Bytes that had to be sent again, as a part of all.
    pub retransmitted: f64,
    /// Sessions that waited for replies with nothing to move.
    pub waiting: f64,
    /// Bytes per second of the run.
    pub rate: f64,
    /// Bytes per second that the run was allowed; 0: as many as it could.
    #[serde(default)]
    pub limit: f64,
    /// Whether the source told its times.
    pub source_tells: bool,
    /// Whether the destination told its times.
    pub destination_tells: bool,
}

/// What held the run back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The source's processors, or the share of them that it may use.
    SourceProcessor,
    /// Reading at the source.
    SourceRead,
    /// Computing checksums at the source.
    SourceHashing,
    /// The path, which carries no more.
    Network,
    /// The receiver's window is smaller than what the path holds.
    Window,
    /// The send buffer is smaller than what the path holds.
    SendBuffer,
    /// The destination's processors, or the share of them that it may use.
    DestinationProcessor,
    /// Writing at the destination.
    DestinationWrite,
    /// Computing checksums at the destination.
    DestinationHashing,
    /// Round trips between commands and replies.
    SessionLatency,
    /// The rate that the user or the service has set.
    RateLimit,
    /// Nothing was busy for most of the time.
    Unknown,
}

/// What takes less than this share of the time holds nothing back.
const MOST: f64 = 0.3;
/// Less of the bytes sent again than this is not worth a word.
const LOSSY: f64 = 5e-5;
/// A limit that holds a sender back for more than this share of its time is what bounds it. Windows that only grow with what
/// the path shows hold it for a while, too.
const HELD: f64 = 0.5;
/// A run whose rate is within this of its limit, as a part of it, moves as much as it may: the first second's worth is ahead, the last part behind.
const AT_LIMIT: std::ops::RangeInclusive<f64> = 0.8..=1.5;

impl Figures {
    fn is_at_limit(&self) -> bool {
        self.limit > 0.0 && AT_LIMIT.contains(&(self.rate / self.limit))
    }
}

impl Bottleneck {
    /// Whether it is the processors of an end, with whatever they do.
    pub fn is_a_processor(self) -> bool {
        matches!(
            self,
            Self::SourceProcessor | Self::SourceHashing | Self::DestinationProcessor | Self::DestinationHashing
        )
    }

    /// The one that the figures name, and its share of the time.
    pub fn find(figures: &Figures) -> (Self, f64) {
        let most = Self::ranked(figures)[0];
        match most {
            // Who waits for leave to move on has nothing else to do.
            (found, share) if figures.is_at_limit() && (found == Self::SessionLatency || share < MOST) => {
                (Self::RateLimit, (figures.rate / figures.limit).min(1.0))
            }
            (_, share) if share < MOST => (Self::Unknown, 0.0),
            (Self::Network, share) => (Self::of_network(figures), share),
            most => most,
        }
    }

    /// Stages by their share of the time, the busiest first.
    fn ranked(figures: &Figures) -> [(Self, f64); 8] {
        let mut all = [
            (Self::SourceProcessor, figures.source_processor),
            (Self::SourceRead, figures.source_read),
            (Self::SourceHashing, figures.source_hashing),
            (Self::Network, figures.network),
            (Self::DestinationProcessor, figures.destination_processor),
            (Self::DestinationWrite, figures.destination_write),
            (Self::DestinationHashing, figures.destination_hashing),
            (Self::SessionLatency, figures.waiting),
        ];
        all.sort_by(|one, other| other.1.total_cmp(&one.1));
        all
    }

    fn of_network(figures: &Figures) -> Self {
        match () {
            () if figures.window >= HELD && figures.window >= figures.send_buffer => Self::Window,
            () if figures.send_buffer >= HELD => Self::SendBuffer,
            () => Self::Network,
        }
    }

    /// What the figures say, by how much, and what comes next.
    pub fn sentence(figures: &Figures) -> String {
        let (found, share) = Self::find(figures);
        if found == Self::RateLimit {
            return format!("at {} of {} that are allowed", ByteRate(figures.rate), ByteRate(figures.limit));
        }
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        if found == Self::Unknown {
            return format!("at {}", ByteRate(figures.rate));
        }
        let mut text = format!("{} of the time, at {}", percent(share), ByteRate(figures.rate));
        match found {
            Self::Window => text += &format!(", the window held senders {} of theirs", percent(figures.window)),
            Self::SendBuffer => {
                text += &format!(", the buffer held senders {} of theirs", percent(figures.send_buffer))
            }
            Self::Network if figures.retransmitted >= LOSSY => {
                text += &format!(", {:.3} % of the bytes sent again", figures.retransmitted * 100.0);
            }
            _ => {}
        }
        let next = Self::ranked(figures)[1];
        if next.1 >= 0.01 && next.0 != Self::SessionLatency {
            let gain = share / next.1;
            text += &format!("; next {} with {}: up to {gain:.1} times faster without", next.0, percent(next.1));
        }
        text += match (figures.source_tells, figures.destination_tells) {
            (true, false) => "; the destination's server does not tell its times",
            (false, true) => "; the source's server does not tell its times",
            _ => "",
        };
        text
    }

    /// What it is and what helps.
    pub fn advice(self) -> &'static str {
        match self {
            Self::SourceProcessor => "the source has too little processor time: more processors or nodes there",
            Self::DestinationProcessor => {
                "the destination has too little processor time: more processors or nodes there"
            }
            Self::SourceRead => "the source's storage delivers no more: more source nodes or faster storage",
            Self::DestinationWrite => {
                "the destination's storage takes no more: more nodes, more stripes or faster storage"
            }
            Self::SourceHashing => "checksums take the source's time: a cheaper algorithm or more processors there",
            Self::DestinationHashing => {
                "checksums take the destination's time: a cheaper algorithm or more processors there"
            }
            Self::Network => "the path carries no more: its capacity, its losses or its round trips bound it",
            Self::Window => {
                "the receiver's window is smaller than the path holds: raise net.ipv4.tcp_rmem at the destination"
            }
            Self::SendBuffer => "the send buffer is smaller than the path holds: raise net.ipv4.tcp_wmem at the source",
            Self::SessionLatency => "replies take the time: deeper pipelines or more sessions",
            Self::RateLimit => {
                "it moves as much as it may: allow more, with --max-rate or at the service that set the bound"
            }
            Self::Unknown => "nothing was busy for most of the time",
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceProcessor => "source processor",
            Self::SourceRead => "source read",
            Self::SourceHashing => "source hashing",
            Self::Network => "network",
            Self::Window => "receive window",
            Self::SendBuffer => "send buffer",
            Self::DestinationProcessor => "destination processor",
            Self::DestinationWrite => "destination write",
            Self::DestinationHashing => "destination hashing",
            Self::SessionLatency => "session latency",
            Self::RateLimit => "rate limit",
            Self::Unknown => "unknown",
        })
    }
}

/// One choice as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What was chosen: `chunks`, `sessions`, `channels`, `pipeline`, `buffer`, `rate`, `congestion`, `unfinished files`.
    pub choice: String,
    /// The value where it is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The value: bytes or a number; `None` for off, or left to the kernel.
    pub value: Option<u64>,
    /// Why.
    pub reason: String,
}

/// Every choice with its reason, what was changed while running, and the bottleneck once it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explain {
    /// The plan.
    pub plan: Vec<Line>,
    /// The changes of the number of sessions, in order, the last ones.
    pub changes: Vec<Line>,
    /// What held the run back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
    /// The figures it was found from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
}

/// Most changes kept.
const CHANGES: usize = 32;

impl Explain {
    /// The plan as it was made.
    pub fn new(plan: &Plan) -> Self {
        let line = |choice: &str, value: Option<u64>, reason: &str| Line {
            choice: choice.into(),
            name: None,
            value,
            reason: reason.into(),
        };
        let number = |name: &str, choice: &Choice<u32>| line(name, Some(u64::from(choice.value)), &choice.reason);
        let (tuning, chunking) = (&plan.tuning, &plan.chunking);
        let lines = vec![
            line("chunks", chunking.value.map(|chunking| chunking.chunk), &chunking.reason),
            number("sessions", &tuning.concurrency),
            number("channels", &tuning.parallelism),
            number("pipeline", &tuning.pipeline),
            line("buffer", tuning.buffer.value, &tuning.buffer.reason),
            Line { name: plan.congestion.value.clone(), ..line("congestion", None, &plan.congestion.reason) },
        ];
        Self { plan: lines, changes: Vec::new(), bottleneck: None, figures: None }
    }

    /// No more bytes a second may be moved than these, if any number is set.
    pub fn limited(&mut self, max_rate: Option<u64>) {
        self.plan.extend(max_rate.map(|rate| Line {
            choice: "rate".into(),
            name: None,
            value: Some(rate),
            reason: "no more in the mean, as --max-rate or the service says".into(),
        }));
    }

    /// The destination's server keeps no unfinished files: what is done instead, and what nobody can promise there.
    pub fn temporary_names(&mut self) {
        let reason = "the destination's server is of another kind: files are renamed when they are complete and proven; \
                      whether what it stored survives a crash of its host it does not say";
        self.plan.push(Line {
            choice: "unfinished files".into(),
            name: Some(".NAME.whimbrel-RUN".into()),
            value: None,
            reason: reason.into(),
        });
    }

    /// The number of sessions was changed.
    pub fn changed(&mut self, sessions: &Choice<u32>) {
        let (value, reason) = (Some(u64::from(sessions.value)), sessions.reason.clone());
        self.change(Line { choice: "sessions".into(), name: None, value, reason });
    }

    /// Files of a place are moved in other parts than the rest.
    pub fn imposed(&mut self, below: &str, chunking: &Choice<Option<Chunking>>) {
        let value = chunking.value.map(|chunking| chunking.chunk);
        let reason = format!("below {below}: {}", chunking.reason);
        self.change(Line { choice: "chunks".into(), name: None, value, reason });
    }

    /// The congestion control of new data connections was chosen.
    pub fn steered(&mut self, congestion: &Choice<String>) {
        let (name, reason) = (Some(congestion.value.clone()), congestion.reason.clone());
        self.change(Line { choice: "congestion".into(), name, value: None, reason });
    }

    fn change(&mut self, line: Line) {
        if self.changes.len() == CHANGES {
            self.changes.remove(0);
        }
        self.changes.push(line);
    }

    /// The figures of the run are known.
    pub fn measured(&mut self, figures: Figures) {
        self.bottleneck = Some(Bottleneck::find(&figures).0);
        self.figures = Some(figures);
    }

    /// One line of JSON without its end of line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it holds only what JSON can carry")
    }
}

/// Lines of `name: value (reason)`.
impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.plan {
            writeln!(f, "{line}")?;
        }
        for line in &self.changes {
            writeln!(f, "then {line}")?;
        }
        if let Some(bottleneck) = self.bottleneck {
            let figures = self.figures.as_ref().map(|figures| format!(" {}", Bottleneck::sentence(figures)));
            writeln!(f, "bottleneck: {bottleneck}{} ({})", figures.unwrap_or_default(), bottleneck.advice())?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.choice)?;
        match (self.value, self.choice.as_str()) {
            (None, _) if self.name.is_some() => f.write_str(self.name.as_deref().unwrap_or_default())?,
            (Some(bytes), "chunks" | "buffer") => write!(f, "{}", ByteCount(bytes))?,
            (Some(bytes), "rate") => write!(f, "{}/s", ByteCount(bytes))?,
            (Some(number), _) => write!(f, "{number}")?,
            (None, "chunks") => f.write_str("none")?,
            (None, _) => f.write_str("automatic")?,
        }
        write!(f, " ({})", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auto::{Facts, plan};

    #[test]
    fn the_busiest_is_named_with_its_share_and_what_comes_next() {
        let figures = Figures { source_read: 0.8, network: 0.2, rate: 5e8, ..Figures::default() };
        assert_eq!(Bottleneck::find(&figures), (Bottleneck::SourceRead, 0.8));
        let text = Bottleneck::sentence(&figures);
        assert_eq!(text, "80 % of the time, at 500 MB/s; next network with 20 %: up to 4.0 times faster without");
        let quiet = Figures { source_read: 0.2, ..Figures::default() };
        assert_eq!(Bottleneck::find(&quiet).0, Bottleneck::Unknown);
        let one_end = Figures { network: 0.9, source_tells: true, ..Figures::default() };
        assert!(Bottleneck::sentence(&one_end).ends_with("the destination's server does not tell its times"));
    }

    #[test]
    fn a_run_that_moves_as_much_as_it_may_is_held_back_by_its_limit_and_by_nothing_else() {
        let waits = Figures { waiting: 0.9, network: 0.1, rate: 4.1e6, limit: 4e6, ..Figures::default() };
        assert_eq!(Bottleneck::find(&waits).0, Bottleneck::RateLimit);
        assert_eq!(Bottleneck::sentence(&waits), "at 4.10 MB/s of 4.00 MB/s that are allowed");
        let slower = Figures { rate: 2e6, ..waits };
        assert_eq!(Bottleneck::find(&slower).0, Bottleneck::SessionLatency);
        let busy = Figures { network: 0.95, ..waits };
        assert_eq!(Bottleneck::find(&busy).0, Bottleneck::Network);
        let mut explain = Explain::new(&plan(&Facts::default()));
        explain.limited(Some(4 << 20));
        assert!(explain.to_string().contains("\nrate: 4.19 MB/s (no more in the mean"), "{explain}");
    }

    #[test]
    fn text_and_json_say_the_same() {
        let mut explain = Explain::new(&plan(&Facts { can_chunk: true, more_to_come: true, ..Facts::default() }));
        for sessions in 0..40 {
            explain.changed(&Choice { value: sessions, reason: "faster".into() });
        }
        explain.measured(Figures { source_hashing: 0.9, ..Figures::default() });
        let text = explain.to_string();
        assert!(text.starts_with("chunks: "), "{text}");
        assert!(text.contains("\nthen sessions: 39 (faster)\n") && !text.contains("sessions: 7 (faster)"), "{text}");
        assert!(
            text.contains("\nbottleneck: source hashing 90 % of the time")
                && text.contains("(checksums take the source's time"),
            "{text}"
        );
        let json = explain.to_json();
        assert!(json.contains(r#""bottleneck":"source_hashing""#) && !json.contains('\n'), "{json}");
        let back: Explain = serde_json::from_str(&json).expect("it can be read back");
        assert_eq!(back, explain);
    }
}
