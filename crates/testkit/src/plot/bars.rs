//! Bars in groups, beside each other or on top of each other.

use std::fmt::Write as _;

use super::{
    Axis, BOTTOM, HEIGHT, LEFT, RIGHT, Ruler, TOP, WIDTH, colour, down, error_bar, escaped, head, text, y_grid,
};

/// Part of a group's width that its bars take.
const FILLED: f64 = 0.8;

/// A chart of bars.
///
/// ```
/// use whimbrel_testkit::plot::{Axis, BarSeries, Bars};
///
/// let bars = Bars {
///     title: "Rate with and without chunks".into(),
///     x: "files".into(),
///     y: Axis::linear("rate, MB/s"),
///     groups: vec!["1".into(), "20".into()],
///     series: vec![BarSeries::new("whole", [10.0, 80.0]), BarSeries::new("in chunks", [85.0, 90.0])],
///     stacked: false,
/// };
/// assert_eq!(bars.svg().matches("<rect").count(), 1 + 4 + 2, "background, bars, legend");
/// ```
#[derive(Clone, Debug)]
pub struct Bars {
    /// Its title.
    pub title: String,
    /// What the groups are.
    pub x: String,
    /// The vertical axis, from zero on.
    pub y: Axis,
    /// Names of the groups; a line feed begins a second line.
    pub groups: Vec<String>,
    /// The bars of all groups that mean the same.
    pub series: Vec<BarSeries>,
    /// Whether the bars of a group stand on top of each other, the first series lowest.
    pub stacked: bool,
}

/// Bars that mean the same, one in each group.
#[derive(Clone, Debug)]
pub struct BarSeries {
    /// Its name in the legend.
    pub name: String,
    /// The value in each group.
    pub values: Vec<f64>,
    /// How far each value may be off; empty: not shown.
    pub errors: Vec<f64>,
}

impl BarSeries {
    /// Bars with these values.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> BarSeries {
        BarSeries { name: name.into(), values: values.into_iter().collect(), errors: Vec::new() }
    }

    /// With how far each value may be off.
    pub fn errors(mut self, errors: impl IntoIterator<Item = f64>) -> BarSeries {
        self.errors = errors.into_iter().collect();
        self
    }
}

impl Bars {
    /// The picture; the same chart always gives the same text.
    pub fn svg(&self) -> String {
        let y = Ruler::new(&self.y, self.tops().into_iter());
        let mut svg = head(&self.title, &self.x, &self.y.label) + &y_grid(&y);
        let width = (WIDTH - LEFT - RIGHT) / self.groups.len().max(1) as f64;
        for (group, name) in self.groups.iter().enumerate() {
            let left = LEFT + width * group as f64;
            svg += &self.group(group, left, width, &y);
            svg += &label(left + width / 2.0, name);
        }
        for (index, series) in self.series.iter().enumerate() {
            let at = TOP + 4.0 + 20.0 * index as f64;
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{at:.1}\" width=\"14\" height=\"12\" fill=\"{}\"/>",
                WIDTH - RIGHT + 14.0,
                colour(index)
            );
            svg += &text(WIDTH - RIGHT + 34.0, at + 10.0, "start", "", &series.name);
        }
        svg + "</svg>\n"
    }

    /// Where the bars end.
    fn tops(&self) -> Vec<f64> {
        let all = self.series.iter().flat_map(|series| series.values.iter().copied());
        if !self.stacked {
            return all.collect();
        }
        let sum = |group| self.series.iter().filter_map(|series| series.values.get(group)).sum();
        (0..self.groups.len()).map(sum).collect()
    }

    fn group(&self, group: usize, left: f64, width: f64, y: &Ruler) -> String {
        let beside = if self.stacked { 1 } else { self.series.len().max(1) };
        let bar = width * FILLED / beside as f64;
        let (mut svg, mut below) = (String::new(), 0.0);
        for (index, series) in self.series.iter().enumerate() {
            let Some(&value) = series.values.get(group) else { continue };
            let at = if self.stacked { 0 } else { index };
            let x = left + width * (1.0 - FILLED) / 2.0 + bar * at as f64;
            let (top, bottom) = (down(y, below + value), down(y, below));
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                (bottom - top).max(0.0),
                colour(index)
            );
            if let Some(&error) = series.errors.get(group) {
                svg += &error_bar(x + bar / 2.0, y, below + value, error, "#333");
            }
            below += if self.stacked { value } else { 0.0 };
        }
        svg
    }
}

/// The name of a group, in one line or two.
fn label(x: f64, name: &str) -> String {
    let lines = name.split('\n').enumerate().map(|(number, words)| {
        let y = HEIGHT - BOTTOM + 14.0 + 12.0 * number as f64;
        format!("<tspan x=\"{x:.1}\" y=\"{y:.1}\">{}</tspan>", escaped(words))
    });
    format!("<text text-anchor=\"middle\" font-size=\"10\">{}</text>\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(stacked: bool) -> Bars {
        Bars {
            title: "T".into(),
            x: "routes".into(),
            y: Axis::linear("s"),
            groups: vec!["A\n1".into(), "B\n2".into()],
            series: vec![
                BarSeries::new("move", [3.0, 1.0]).errors([0.5, 0.1]),
                BarSeries::new("prove", [2.0, f64::from(u8::MAX) / 255.0]),
            ],
            stacked,
        }
    }

    #[test]
    fn bars_on_top_of_each_other_reach_to_their_sum() {
        assert_eq!(bars(true).tops(), [5.0, 2.0]);
        assert_eq!(bars(false).tops(), [3.0, 1.0, 2.0, 1.0]);
    }

    #[test]
    fn groups_series_and_errors_are_shown() {
        let svg = bars(false).svg();
        for part in ["routes", ">A</tspan>", ">2</tspan>", "move", "prove"] {
            assert!(svg.contains(part), "{part} is missing in\n{svg}");
        }
        assert_eq!(svg.matches("<rect").count(), 1 + 4 + 2);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn nothing_to_show_is_still_a_picture() {
        let nothing = Bars { groups: vec![], series: vec![], ..bars(true) };
        assert!(nothing.svg().ends_with("</svg>\n"));
    }
}
