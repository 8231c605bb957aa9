//! What was chosen, why, and what held the run back; as text for people and as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::tune::Choice;
use crate::units::ByteCount;

/// What was busy while bytes were moved, each as the share of the time, 0 to 1; 0 where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Senders waiting for the source's storage.
    pub source_read: f64,
    /// Receivers waiting for the destination's storage.
    pub destination_write: f64,
    /// Hashing, at the end and in the direction where it is the most.
    pub hashing: f64,
    /// The path's capacity in use.
    pub link: f64,
    /// Senders held back by the congestion window.
    pub congestion: f64,
    /// Segments that had to be sent again, as a part of all.
    pub retransmitted: f64,
    /// Senders held back by the receiver's window or their own send buffer.
    pub window: f64,
    /// Sessions that waited for replies with nothing to move.
    pub waiting: f64,
}

/// What held the run back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// Reading at the source.
    SourceRead,
    /// Writing at the destination.
    DestinationWrite,
    /// Computing checksums.
    Hashing,
    /// The path is full: as good as it gets.
    Link,
    /// Loss on the path, which senders take for congestion.
    NetworkLoss,
    /// Windows smaller than what the path holds.
    Window,
    /// Round trips between commands and replies.
    SessionLatency,
    /// Nothing was busy for most of the time.
    Unknown,
}

/// A path in use by this much is full.
const FULL: f64 = 0.9;
/// What takes less than this share of the time holds nothing back.
const MOST: f64 = 0.4;
/// More lost segments than this are no accident.
const LOSSY: f64 = 1e-5;

impl Bottleneck {
    /// The one that the figures name, and its share of the time.
    pub fn find(figures: &Figures) -> (Self, f64) {
        if figures.link >= FULL {
            return (Self::Link, figures.link);
        }
        let loss = if figures.retransmitted >= LOSSY { figures.congestion } else { 0.0 };
        let shares = [
            (Self::SourceRead, figures.source_read),
            (Self::DestinationWrite, figures.destination_write),
            (Self::Hashing, figures.hashing),
            (Self::NetworkLoss, loss),
            (Self::Window, figures.window),
            (Self::SessionLatency, figures.waiting),
        ];
        let most = shares.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share >= MOST);
        most.unwrap_or((Self::Unknown, 0.0))
    }

    /// What it is and what helps.
    pub fn advice(self) -> &'static str {
        match self {
            Self::SourceRead => "the source's storage delivers no more: more source nodes or faster storage",
            Self::DestinationWrite => {
                "the destination's storage takes no more: more nodes, more stripes or faster storage"
            }
            Self::Hashing => "checksums take the time: a cheaper algorithm or more processors",
            Self::Link => "the path is full",
            Self::NetworkLoss => "the path loses segments: BBR, more channels, or a repair of the path",
            Self::Window => "windows are smaller than the path holds: raise the hosts' socket buffer limits",
            Self::SessionLatency => "replies take the time: deeper pipelines or more sessions",
            Self::Unknown => "nothing was busy for most of the time",
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceRead => "source read",
            Self::DestinationWrite => "destination write",
            Self::Hashing => "hashing",
            Self::Link => "link",
            Self::NetworkLoss => "network loss",
            Self::Window => "window",
            Self::SessionLatency => "session latency",
            Self::Unknown => "unknown",
        })
    }
}

/// One choice as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What was chosen: `chunks`, `sessions`, `channels`, `pipeline`, `buffer`.
    pub choice: String,
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
        ];
        Self { plan: lines, changes: Vec::new(), bottleneck: None, figures: None }
    }

    /// The number of sessions was changed.
    pub fn changed(&mut self, sessions: &Choice<u32>) {
        if self.changes.len() == CHANGES {
            self.changes.remove(0);
        }
        let (value, reason) = (Some(u64::from(sessions.value)), sessions.reason.clone());
        self.changes.push(Line { choice: "sessions".into(), value, reason });
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
            writeln!(f, "bottleneck: {bottleneck} ({})", bottleneck.advice())?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.choice)?;
        match (self.value, self.choice.as_str()) {
            (Some(bytes), "chunks" | "buffer") => write!(f, "{}", ByteCount(bytes))?,
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
    fn the_busiest_is_named_and_loss_only_where_segments_are_lost() {
        let quiet = Figures { source_read: 0.2, congestion: 0.95, ..Figures::default() };
        let find = |figures: Figures| Bottleneck::find(&figures).0;
        assert_eq!(find(quiet), Bottleneck::Unknown);
        assert_eq!(find(Figures { retransmitted: 1e-4, ..quiet }), Bottleneck::NetworkLoss);
        assert_eq!(find(Figures { link: 0.93, ..quiet }), Bottleneck::Link);
        assert_eq!(find(Figures { source_read: 0.9, hashing: 0.5, ..quiet }), Bottleneck::SourceRead);
        assert_eq!(find(Figures { destination_write: 0.7, ..quiet }), Bottleneck::DestinationWrite);
        assert_eq!(find(Figures { hashing: 0.8, ..quiet }), Bottleneck::Hashing);
        assert_eq!(find(Figures { window: 0.8, ..quiet }), Bottleneck::Window);
        assert_eq!(find(Figures { waiting: 0.5, ..quiet }), Bottleneck::SessionLatency);
    }

    #[test]
    fn text_and_json_say_the_same() {
        let mut explain = Explain::new(&plan(&Facts { can_chunk: true, more_to_come: true, ..Facts::default() }));
        for sessions in 0..40 {
            explain.changed(&Choice { value: sessions, reason: "faster".into() });
        }
        explain.measured(Figures { hashing: 0.9, ..Figures::default() });
        let text = explain.to_string();
        assert!(text.starts_with("chunks: "), "{text}");
        assert!(text.contains("\nthen sessions: 39 (faster)\n") && !text.contains("sessions: 7 (faster)"), "{text}");
        assert!(
            text.ends_with("bottleneck: hashing (checksums take the time: a cheaper algorithm or more processors)\n")
        );
        let json = explain.to_json();
        assert!(json.contains(r#""bottleneck":"hashing""#) && !json.contains('\n'), "{json}");
        let back: Explain = serde_json::from_str(&json).expect("it can be read back");
        assert_eq!(back, explain);
    }
}
