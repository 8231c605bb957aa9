//! The figures, drawn.

use whimbrel_testkit::plot::{Axis, BarSeries, Bars, Chart, Series};

use crate::results::{Results, Value};
use crate::scaling::{PAIRS, WRITE_RATE};
use crate::setting::{CHUNKS, FEW, FILES, Route, Setting};

const RATE: &str = "rate, MB/s";

/// A picture and the name of its file.
pub struct Figure {
    pub name: &'static str,
    pub svg: String,
}

/// Every figure.
pub fn all(results: &Results) -> Vec<Figure> {
    let figure = |name, svg| Figure { name, svg };
    let (whole, chunked): (Of, Of) = (Setting::whole, Setting::chunked);
    vec![
        figure("figure-6", chunk_size(results)),
        figure("figure-7-whole", proof(results, whole, "Figure 7, whole files")),
        figure("figure-7-chunks", proof(results, chunked, "Figure 7, in chunks")),
        figure("figure-8", stacked(results)),
        figure("figure-8-proof", proof_time(results)),
        figure("figure-9-whole", files(results, whole, "Figure 9, whole files")),
        figure("figure-9-chunks", files(results, chunked, "Figure 9, in chunks")),
        figure("figure-10", chunks(results)),
        figure("scaling", scaling(results)),
    ]
}

/// How copies are done, by route and number of files.
type Of = fn(Route, u32) -> Setting;

/// Zero where it was not measured.
fn median(value: Option<Value>) -> f64 {
    value.map_or(0.0, |value| value.median)
}

fn deviation(value: Option<Value>) -> f64 {
    value.map_or(0.0, |value| value.deviation)
}

fn bars_of(name: impl Into<String>, values: impl Iterator<Item = Option<Value>> + Clone) -> BarSeries {
    BarSeries::new(name, values.clone().map(median)).errors(values.map(deviation))
}

fn chunk_size(results: &Results) -> String {
    let line = |route: Route, files: u32| {
        let values = CHUNKS.into_iter().filter_map(move |chunk| {
            let setting = Setting { chunk: Some(chunk), ..Setting::whole(route, files) };
            Some((chunk as f64, results.rate(setting)?))
        });
        let points = values.clone().map(|(chunk, value)| (chunk, value.median));
        Series::new(format!("{route}, {files} files"), points).errors(values.map(|(_, value)| value.deviation))
    };
    let lines = Route::MAIN.iter().flat_map(|&route| FEW.map(|files| line(route, files)));
    Chart {
        title: "Figure 6: size of chunks".into(),
        x: Axis::log("size of chunks in the paper, MB"),
        y: Axis::linear(RATE),
        series: lines.collect(),
    }
    .svg()
}

/// Each route with each number of files.
fn groups(routes: &[Route]) -> Vec<(Route, u32)> {
    routes.iter().flat_map(|&route| FEW.map(|files| (route, files))).collect()
}

fn names(groups: &[(Route, u32)]) -> Vec<String> {
    groups.iter().map(|(route, files)| format!("{route}\n{files}")).collect()
}

fn proof(results: &Results, of: Of, title: &str) -> String {
    let groups = groups(&Route::ALL);
    let rates = |proof| {
        let setting = move |&(route, files): &(Route, u32)| Setting { proof, ..of(route, files) };
        groups.iter().map(move |group| results.rate(setting(group)))
    };
    Bars {
        title: title.into(),
        x: "route and number of files".into(),
        y: Axis::linear(RATE),
        groups: names(&groups),
        series: vec![bars_of("without the proof", rates(false)), bars_of("with the proof", rates(true))],
        stacked: false,
    }
    .svg()
}

fn stacked(results: &Results) -> String {
    let both: [(Of, &str); 2] = [(Setting::whole, "whole"), (Setting::chunked, "chunks")];
    let of =
        |&(route, files): &(Route, u32)| both.map(|(of, name)| (of(route, files), format!("{route} {files}\n{name}")));
    let bars: Vec<(Setting, String)> = groups(&Route::MAIN).iter().flat_map(of).collect();
    let moving = bars.iter().map(|(setting, _)| median(results.time(setting.unproven())));
    let proving = bars.iter().map(|(setting, _)| results.proof_time(*setting).unwrap_or(0.0));
    Bars {
        title: "Figure 8: time of moving and of the proof".into(),
        x: "route, number of files, and how they move".into(),
        y: Axis::linear("time, s"),
        groups: bars.iter().map(|(_, name)| name.clone()).collect(),
        series: vec![BarSeries::new("moving", moving), BarSeries::new("added by the proof", proving)],
        stacked: true,
    }
    .svg()
}

fn proof_time(results: &Results) -> String {
    let groups = groups(&Route::MAIN);
    let times = |of: Of| groups.iter().map(move |&(route, files)| results.proof_time(of(route, files)).unwrap_or(0.0));
    Bars {
        title: "Figure 8: time that the proof adds".into(),
        x: "route and number of files".into(),
        y: Axis::linear("time, s"),
        groups: names(&groups),
        series: vec![
            BarSeries::new("whole", times(Setting::whole)),
            BarSeries::new("in chunks", times(Setting::chunked)),
        ],
        stacked: false,
    }
    .svg()
}

fn files(results: &Results, of: Of, title: &str) -> String {
    let series = FILES.map(|files| {
        bars_of(format!("{files} files"), Route::ALL.iter().map(move |&route| results.rate(of(route, files))))
    });
    Bars {
        title: format!("{title}, all proven"),
        x: "route".into(),
        y: Axis::linear(RATE),
        groups: Route::ALL.map(|route| route.to_string()).to_vec(),
        series: series.to_vec(),
        stacked: false,
    }
    .svg()
}

fn chunks(results: &Results) -> String {
    let groups = groups(&Route::ALL);
    let rates = |of: Of| groups.iter().map(move |&(route, files)| results.rate(of(route, files)));
    Bars {
        title: "Figure 10: with and without chunks, all proven".into(),
        x: "route and number of files".into(),
        y: Axis::linear(RATE),
        groups: names(&groups),
        series: vec![bars_of("whole", rates(Setting::whole)), bars_of("in chunks", rates(Setting::chunked))],
        stacked: false,
    }
    .svg()
}

fn scaling(results: &Results) -> String {
    let measured = (1..=PAIRS).filter_map(|pairs| Some((f64::from(pairs), results.rate_over(pairs)?)));
    let points = measured.clone().map(|(pairs, value)| (pairs, value.median));
    let limit = (0..=PAIRS).map(|pairs| (f64::from(pairs), f64::from(pairs) * WRITE_RATE as f64 / 1e6));
    Chart {
        title: "One file over pairs of nodes".into(),
        x: Axis::linear("pairs of nodes"),
        y: Axis::linear(RATE),
        series: vec![
            Series::new("measured, proven", points).errors(measured.map(|(_, value)| value.deviation)),
            Series::new("what the storage takes", limit),
        ],
    }
    .svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Scale;

    #[test]
    fn figures_without_measurements_are_still_pictures() {
        for Figure { name, svg } in all(&Results::new(Scale::QUICK)) {
            assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{name}");
        }
    }

    #[test]
    fn what_was_measured_is_drawn() {
        let mut results = Results::new(Scale::FULL);
        results.seconds.insert(Setting::chunked(Route::A2N, 5), vec![1.0, 2.0]);
        assert!(chunk_size(&results).contains("<circle"));
        assert!(files(&results, Setting::chunked, "").contains("5 files"));
    }
}
