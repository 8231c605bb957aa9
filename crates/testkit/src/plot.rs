//! Charts of lines and of bars as SVG, for the figures of the reference.
//!
//! ```
//! use whimbrel_testkit::plot::{Axis, Chart, Series};
//!
//! let chart = Chart {
//!     title: "Rate by number of nodes".into(),
//!     x: Axis::linear("nodes"),
//!     y: Axis::linear("rate, Gbit/s"),
//!     series: vec![Series::new("measured", [(1.0, 0.9), (2.0, 1.8), (4.0, 3.5)])],
//! };
//! assert!(chart.svg().starts_with("<svg"));
//! ```

mod bars;

use std::fmt::Write as _;

pub use bars::{BarSeries, Bars};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;

/// Colours that people who see few of them can tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// How values are spread on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero on.
    Linear,
    /// By powers of ten; a value of zero stands at the left end, apart.
    Log,
}

/// One axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How its values are spread.
    pub scale: Scale,
}

impl Axis {
    /// An axis from zero on.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear }
    }

    /// An axis by powers of ten.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// How far each point may be off, up and down; empty: not shown.
    pub errors: Vec<f64>,
}

impl Series {
    /// A line through points.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        Series { name: name.into(), points: points.into_iter().collect(), errors: Vec::new() }
    }

    /// With how far each point may be off.
    pub fn errors(mut self, errors: impl IntoIterator<Item = f64>) -> Series {
        self.errors = errors.into_iter().collect();
        self
    }
}

/// A chart of lines.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Its lines.
    pub series: Vec<Series>,
}

/// An axis with its values: where each is, from 0 to 1, and which are labelled.
struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Ruler {
    fn new(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> Ruler {
        let largest = values.clone().filter(|value| value.is_finite()).fold(0.0, f64::max);
        match axis.scale {
            Scale::Linear => {
                let step = round_step(largest / 5.0);
                let count = (largest / step).ceil().max(1.0) as u32;
                let ticks: Vec<f64> = (0..=count).map(|tick| f64::from(tick) * step).collect();
                Ruler { scale: axis.scale, low: 0.0, high: f64::from(count) * step, ticks }
            }
            Scale::Log => {
                let smallest = values.clone().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
                let (first, last) = match smallest.is_finite() {
                    true => (smallest.log10().floor() as i32, largest.log10().ceil() as i32),
                    false => (0, 1),
                };
                let last = last.max(first + 1);
                let has_zero = values.clone().any(|value| value == 0.0);
                let mut ticks: Vec<f64> = (first..=last).map(|power| 10f64.powi(power)).collect();
                if has_zero {
                    ticks.insert(0, 0.0);
                }
                let low = f64::from(first) - f64::from(u8::from(has_zero));
                Ruler { scale: axis.scale, low, high: f64::from(last), ticks }
            }
        }
    }

    fn place(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log if value <= 0.0 => self.low,
            Scale::Log => value.log10(),
        };
        (value - self.low) / (self.high - self.low)
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    if least <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powi(least.log10().floor() as i32);
    [1.0, 2.0, 5.0].into_iter().map(|factor| factor * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

impl Chart {
    /// The picture; the same chart always gives the same text.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let x = Ruler::new(&self.x, points().map(|point| point.0));
        let y = Ruler::new(&self.y, points().map(|point| point.1));
        let right = |value: f64| LEFT + x.place(value) * (WIDTH - LEFT - RIGHT);
        let mut svg = head(&self.title, &self.x.label, &self.y.label);
        for &tick in &x.ticks {
            svg += &text(right(tick), HEIGHT - BOTTOM + 18.0, "middle", "", &number(tick));
            svg += &line((right(tick), TOP), (right(tick), HEIGHT - BOTTOM), "#ddd");
        }
        svg += &y_grid(&y);
        for (index, series) in self.series.iter().enumerate() {
            let colour = colour(index);
            let places: Vec<(f64, f64)> = series.points.iter().map(|&(x, value)| (right(x), down(&y, value))).collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
            for (place, (point, error)) in places.iter().zip(series.points.iter().zip(&series.errors)) {
                svg += &error_bar(place.0, &y, point.1, *error, colour);
            }
            for (x, y) in &places {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
            }
            let at = TOP + 10.0 + 20.0 * index as f64;
            svg += &line((WIDTH - RIGHT + 14.0, at), (WIDTH - RIGHT + 38.0, at), colour);
            svg += &text(WIDTH - RIGHT + 44.0, at + 4.0, "start", "", &series.name);
        }
        svg + "</svg>\n"
    }
}

fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Height of a value on the vertical axis.
fn down(y: &Ruler, value: f64) -> f64 {
    HEIGHT - BOTTOM - y.place(value) * (HEIGHT - TOP - BOTTOM)
}

/// The picture's beginning: its background, title and the names of its axes.
fn head(title: &str, x_label: &str, y_label: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg += &text(middle, 24.0, "middle", " font-size=\"15\"", title);
    svg += &text(middle, HEIGHT - 14.0, "middle", "", x_label);
    let height = (TOP + HEIGHT - BOTTOM) / 2.0;
    svg + &text(18.0, height, "middle", &format!(" transform=\"rotate(-90 18 {height:.1})\""), y_label)
}

/// The vertical axis with its lines.
fn y_grid(y: &Ruler) -> String {
    let grid = y.ticks.iter().map(|&tick| {
        let at = down(y, tick);
        text(LEFT - 8.0, at + 4.0, "end", "", &number(tick)) + &line((LEFT, at), (WIDTH - RIGHT, at), "#ddd")
    });
    grid.collect()
}

/// From `error` below to `error` above a value.
fn error_bar(x: f64, y: &Ruler, value: f64, error: f64, colour: &str) -> String {
    let (low, high) = (down(y, (value - error).max(0.0)), down(y, value + error));
    let cap = |at: f64| line((x - 3.0, at), (x + 3.0, at), colour);
    line((x, low), (x, high), colour) + &cap(low) + &cap(high)
}

fn text(x: f64, y: f64, anchor: &str, more: &str, words: &str) -> String {
    let words = escaped(words);
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{words}</text>\n")
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>\n")
}

/// As few digits as tell it.
fn number(value: f64) -> String {
    let rounded = (value * 1000.0).round() / 1000.0;
    if value != 0.0 && rounded == 0.0 { format!("{value:e}") } else { rounded.to_string() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x: Axis, points: &[(f64, f64)]) -> String {
        let series = vec![Series::new("a <b>", points.iter().copied())];
        Chart { title: "T & t".into(), x, y: Axis::linear("rate, MB/s"), series }.svg()
    }

    #[test]
    fn a_chart_names_title_axes_units_and_lines() {
        let svg = chart(Axis::linear("nodes"), &[(1.0, 10.0), (2.0, 20.0)]);
        for part in ["T &amp; t", "nodes", "rate, MB/s", "a &lt;b&gt;", "</svg>"] {
            assert!(svg.contains(part), "{part} is missing in\n{svg}");
        }
        assert_eq!(svg.matches("<circle").count(), 2);
    }

    #[test]
    fn axes_begin_at_zero_and_end_at_a_round_value_beyond_the_largest() {
        let ruler = Ruler::new(&Axis::linear(""), [3.0, 87.0].into_iter());
        assert_eq!(ruler.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((ruler.place(0.0), ruler.place(50.0)), (0.0, 0.5));
    }

    #[test]
    fn zero_stands_apart_where_steps_are_powers_of_ten() {
        let ruler = Ruler::new(&Axis::log(""), [0.0, 5.0, 300.0].into_iter());
        assert_eq!(ruler.ticks, [0.0, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!((ruler.place(0.0), ruler.place(1000.0), ruler.place(10.0)), (0.0, 1.0, 0.5));
    }

    #[test]
    fn nothing_to_show_is_still_a_picture() {
        for axis in [Axis::linear("x"), Axis::log("x")] {
            assert!(!chart(axis, &[]).contains("NaN"));
        }
    }
}
