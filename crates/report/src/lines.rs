//! Line charts: several series over one numeric axis.

use kuva::plot::LinePlot;
use kuva::plot::legend::LegendPosition;
use kuva::render::annotations::ReferenceLine;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

use crate::chart::{Chart, HEIGHT_PX, WIDTH_PX, colour, label};

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

    /// Adds a dashed vertical line at `x` with a label.
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
        let mut plots = Vec::new();
        let (mut x_range, mut y_range) = (Range::default(), Range::default());
        for (at, (name, points)) in self.series.iter().enumerate() {
            let points: Vec<&Point> = points
                .iter()
                .filter(|p| LineChart::fits(p.x, self.log_x))
                .filter(|p| p.y_ends().iter().all(|y| LineChart::fits(*y, self.log_y)))
                .collect();
            if points.is_empty() {
                continue;
            }
            points.iter().for_each(|p| x_range.widen(p.x));
            points.iter().flat_map(|p| p.y_ends()).for_each(|y| y_range.widen(y));
            let mut plot = LinePlot::new()
                .with_data(points.iter().map(|p| (p.x, p.y)))
                .with_color(colour(at))
                .with_legend(label(name));
            if points.iter().any(|p| p.interval.is_some()) {
                plot = plot
                    .with_band(points.iter().map(|p| p.y_ends()[1]), points.iter().map(|p| p.y_ends()[2]));
            }
            plots.push(Plot::Line(plot));
        }
        if plots.is_empty() {
            return Chart::empty(&self.title);
        }
        let mut layout = Layout::auto_from_plots(&plots)
            .with_width(WIDTH_PX)
            .with_height(HEIGHT_PX)
            .with_x_label(label(&self.x_axis))
            .with_y_label(label(&self.y_axis))
            .with_legend_position(LegendPosition::OutsideBottomColumns)
            .with_legend_box(false);
        if self.log_x {
            let (low, high) = x_range.with_margins();
            layout = layout.with_log_x().with_x_axis_min(low).with_x_axis_max(high);
        }
        if self.log_y {
            let (low, high) = y_range.with_margins();
            layout = layout.with_log_y().with_y_axis_min(low).with_y_axis_max(high);
        }
        for (x, name) in self.marks.iter().filter(|(x, _)| LineChart::fits(*x, self.log_x)) {
            let line = ReferenceLine::vertical(*x).with_label(label(name)).with_color("#555555");
            layout = layout.with_reference_line(line);
        }
        Chart::draw(&self.title, plots, layout)
    }
}
