//! Line charts: several series over one numeric axis.

use std::sync::Arc;

use askama::Template;
use kuva::plot::LinePlot;
use kuva::plot::line::LineStyle;
use kuva::render::annotations::ReferenceLine;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::theme::Theme;

use crate::chart::{COLOURS, Chart, Entry};
use crate::number::{rounded, tick};
use crate::plain::plain;

/// Size of a picture, in CSS pixels at its natural size. A page shows the one that fits the window.
#[derive(Clone, Copy, Debug)]
struct Size {
    width: f64,
    height: f64,
    ticks: usize,
}

/// For windows of a desktop, and for paper.
const WIDE: Size = Size { width: 760.0, height: 380.0, ticks: 8 };
/// For phones. At a width of 290 pixels its text is still 11 pixels high.
const NARROW: Size = Size { width: 340.0, height: 280.0, ticks: 4 };

/// Height of text in a picture, in CSS pixels.
const TEXT_PX: u32 = 13;

/// Dashes of the lines by the number of the series. They show every line of several that lie on each other.
const DASHES: [&str; 4] = ["none", "9 6", "2 5", "12 4 2 4"];

/// Dashes of marks.
const MARK_DASHES: &str = "4 3";

/// Number of the colour of marks, in the style sheet of the page.
const MARK_COLOUR: usize = COLOURS;

/// Distance of two lines, as a share of the extent of the axis, up to which they look like one.
const COINCIDE: f64 = 0.005;

/// One point of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
    interval: Option<(f64, f64)>,
}

impl Point {
    /// A point with an interval for `y`, drawn as a band around the line.
    pub fn within(x: f64, y: f64, low: f64, high: f64) -> Point {
        Point { x, y, interval: Some((low, high)) }
    }

    fn y_ends(&self) -> [f64; 3] {
        let (low, high) = self.interval.unwrap_or((self.y, self.y));
        [self.y, low, high]
    }
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Point {
        Point { x, y, interval: None }
    }
}

/// The range of values that an axis must show.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: f64,
    high: f64,
}

impl Default for Range {
    fn default() -> Range {
        Range { low: f64::INFINITY, high: f64::NEG_INFINITY }
    }
}

impl Range {
    fn widen(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
    }

    /// Ends of a logarithmic axis: slightly beyond the data instead of at the next power of ten.
    fn with_margins(self) -> (f64, f64) {
        let margin = if self.high > self.low { 1.15 } else { 2.0 };
        (self.low / margin, self.high * margin)
    }
}

/// A line chart. Points that cannot be drawn (not finite, or not positive on a logarithmic axis) are omitted.
#[derive(Clone, Debug)]
pub struct LineChart {
    title: String,
    x_axis: String,
    y_axis: String,
    series: Vec<(String, Vec<Point>)>,
    marks: Vec<(f64, String)>,
    log_x: bool,
    log_y: bool,
}

impl LineChart {
    /// Creates a chart without lines. Each axis text names the measured quantity and its unit.
    pub fn new(title: &str, x_axis: &str, y_axis: &str) -> LineChart {
        LineChart {
            title: title.to_string(),
            x_axis: x_axis.to_string(),
            y_axis: y_axis.to_string(),
            series: Vec::new(),
            marks: Vec::new(),
            log_x: false,
            log_y: false,
        }
    }

    /// Adds a line that connects the points in the order given.
    pub fn series<P: Into<Point>>(mut self, name: &str, points: impl IntoIterator<Item = P>) -> LineChart {
        self.series.push((name.to_string(), points.into_iter().map(Into::into).collect()));
        self
    }

    /// Adds a dashed vertical line at `x`. The legend has its name.
    pub fn mark(mut self, x: f64, name: &str) -> LineChart {
        self.marks.push((x, name.to_string()));
        self
    }

    /// Makes the x axis logarithmic.
    pub fn log_x(mut self) -> LineChart {
        self.log_x = true;
        self
    }

    /// Makes the y axis logarithmic.
    pub fn log_y(mut self) -> LineChart {
        self.log_y = true;
        self
    }

    /// Returns whether a value can be drawn on an axis.
    fn fits(value: f64, log: bool) -> bool {
        value.is_finite() && (!log || value > 0.0)
    }

    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        let lines = self.lines();
        let mut legend: Vec<Entry> = lines
            .iter()
            .map(|line| Entry {
                colour: line.number % COLOURS,
                dashes: Some(DASHES[line.number % DASHES.len()]),
                name: plain(line.name),
            })
            .collect();
        let marks = self.marks.iter().filter(|(x, _)| LineChart::fits(*x, self.log_x));
        legend.extend(marks.map(|(x, name)| Entry {
            colour: MARK_COLOUR,
            dashes: Some(MARK_DASHES),
            name: format!("{} ({})", plain(name), rounded(*x)),
        }));
        let pictures = if lines.is_empty() {
            Vec::new()
        } else {
            [("wide", WIDE), ("narrow", NARROW)].map(|(name, size)| (name, self.picture(&lines, size))).into()
        };
        let drawing = Drawing {
            title: plain(&self.title),
            axis: format!("{} by {}", plain(&self.y_axis), plain(&self.x_axis)),
            legend,
            pictures,
            notes: self.coinciding(&lines),
        };
        // The template has no fallible part, and writing to a string cannot fail.
        Chart::new(&self.title, drawing.render().unwrap_or_default())
    }

    /// The series with their points that can be drawn, without those that have none.
    fn lines(&self) -> Vec<Line<'_>> {
        let can_draw = |p: &&Point| {
            LineChart::fits(p.x, self.log_x) && p.y_ends().iter().all(|y| LineChart::fits(*y, self.log_y))
        };
        let lines = self.series.iter().enumerate().map(|(number, (name, points))| Line {
            number,
            name,
            points: points.iter().filter(can_draw).collect(),
        });
        lines.filter(|line| !line.points.is_empty()).collect()
    }

    /// Draws the lines as SVG. Colours are variables of the style sheet of the page.
    fn picture(&self, lines: &[Line], size: Size) -> String {
        let (mut x_range, mut y_range) = (Range::default(), Range::default());
        let mut plots = Vec::new();
        for Line { number, points, .. } in lines {
            points.iter().for_each(|p| x_range.widen(p.x));
            points.iter().flat_map(|p| p.y_ends()).for_each(|y| y_range.widen(y));
            let mut plot = LinePlot::new()
                .with_data(points.iter().map(|p| (p.x, p.y)))
                .with_color(format!("var(--s{})", number % COLOURS))
                .with_stroke_width(2.5);
            if *number % DASHES.len() > 0 {
                plot = plot.with_line_style(LineStyle::Custom(DASHES[number % DASHES.len()].to_string()));
            }
            if points.iter().any(|p| p.interval.is_some()) {
                plot = plot
                    .with_band(points.iter().map(|p| p.y_ends()[1]), points.iter().map(|p| p.y_ends()[2]));
            }
            plots.push(Plot::Line(plot));
        }
        let theme = Theme {
            background: "none".into(),
            axis_color: "var(--rule)".into(),
            grid_color: "var(--grid)".into(),
            tick_color: "var(--rule)".into(),
            text_color: "currentColor".into(),
            ..Theme::light()
        };
        let mut layout = Layout::auto_from_plots(&plots)
            .with_width(size.width)
            .with_height(size.height)
            .with_ticks(size.ticks)
            .with_tick_size(TEXT_PX)
            .with_label_size(TEXT_PX)
            .with_theme(theme)
            .with_tick_format(TickFormat::Custom(Arc::new(tick)))
            .with_x_label(label(&self.x_axis))
            .with_y_label(label(&self.y_axis));
        if self.log_x {
            let (low, high) = x_range.with_margins();
            layout = layout.with_log_x().with_x_axis_min(low).with_x_axis_max(high);
        }
        if self.log_y {
            let (low, high) = y_range.with_margins();
            layout = layout.with_log_y().with_y_axis_min(low).with_y_axis_max(high);
        }
        for (x, _) in self.marks.iter().filter(|(x, _)| LineChart::fits(*x, self.log_x)) {
            let line = ReferenceLine::vertical(*x).with_color("var(--mark)").with_dasharray(MARK_DASHES);
            layout = layout.with_reference_line(line);
        }
        scalable(&kuva::render_to_svg(plots, layout))
    }

    /// Names the lines that lie on each other.
    fn coinciding(&self, lines: &[Line]) -> Vec<String> {
        let height = |y: f64| if self.log_y { y.ln() } else { y };
        let mut range = Range::default();
        lines.iter().flat_map(|line| &line.points).for_each(|p| range.widen(height(p.y)));
        let near = (range.high - range.low) * COINCIDE;
        let same =
            |one: &Line, other: &Line| {
                one.points.len() == other.points.len()
                    && one.points.iter().zip(&other.points).all(|(p, q)| {
                        p.x.total_cmp(&q.x).is_eq() && (height(p.y) - height(q.y)).abs() <= near
                    })
            };
        let mut seen = vec![false; lines.len()];
        let mut notes = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let rest = (at + 1..lines.len()).filter(|other| !seen[*other] && same(line, &lines[*other]));
            let rest: Vec<usize> = rest.collect();
            if let Some((last, others)) = rest.split_last().filter(|_| !seen[at]) {
                let first = std::iter::once(line.name).chain(others.iter().map(|other| lines[*other].name));
                let first: Vec<&str> = first.collect();
                notes.push(plain(&format!("{} and {} coincide.", first.join(", "), lines[*last].name)));
                rest.iter().for_each(|other| seen[*other] = true);
            }
        }
        notes
    }
}

/// A series as drawn.
#[derive(Debug)]
struct Line<'a> {
    number: usize,
    name: &'a str,
    points: Vec<&'a Point>,
}

#[derive(Template)]
#[template(path = "lines.html")]
struct Drawing {
    title: String,
    axis: String,
    legend: Vec<Entry>,
    pictures: Vec<(&'static str, String)>,
    notes: Vec<String>,
}

/// Returns text that the drawing library shows unchanged. The library reads `$...$` as a formula, and XML
/// does not allow control characters.
fn label(text: &str) -> String {
    plain(text).replace('$', "\\$")
}

/// Adds a view box, so that a page can scale the picture.
fn scalable(svg: &str) -> String {
    let size = |name: &str| {
        let start = svg.find(&format!(" {name}=\""))? + name.len() + 3;
        Some(&svg[start..start + svg[start..].find('"')?])
    };
    match (size("width"), size("height")) {
        (Some(width), Some(height)) => {
            svg.replacen("<svg ", &format!("<svg viewBox=\"0 0 {width} {height}\" "), 1)
        }
        _ => svg.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn labels_are_taken_literally() {
        assert_eq!(label("US$ and $x^2$\u{7}"), "US\\$ and \\$x^2\\$ ");
    }
}
