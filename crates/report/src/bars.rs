//! Bar charts: groups of horizontal bars, side by side or stacked, with optional intervals.

use askama::Template;

use crate::chart::{COLOURS, Chart, Entry};
use crate::number::rounded;
use crate::plain::plain;
use crate::scale::{Scale, Span};

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// A value, with its interval from the lowest to the highest if it has one. A value that is not finite is
    /// shown as [`Bar::Unknown`].
    Value {
        /// The value.
        value: f64,
        /// The interval, drawn as a whisker.
        interval: Option<(f64, f64)>,
    },
    /// There is a value, but it is not known. The chart says "unknown" and draws no bar.
    Unknown,
    /// The series has nothing to show in the group. The chart omits the bar.
    Missing,
}

impl Bar {
    /// A value with its interval, drawn as a whisker from `low` to `high`. An interval without extent, or
    /// with an end that is not finite, is not drawn.
    pub fn within(value: f64, low: f64, high: f64) -> Bar {
        let has_extent = low.is_finite() && high.is_finite() && low < high;
        Bar::Value { value, interval: has_extent.then_some((low, high)) }
    }

    /// The value if it is known.
    fn value(&self) -> Option<f64> {
        match self {
            Bar::Value { value, .. } => Some(*value).filter(|value| value.is_finite()),
            Bar::Unknown | Bar::Missing => None,
        }
    }

    /// All numbers that the axis must show.
    fn extent(&self) -> impl Iterator<Item = f64> {
        let ends = match self {
            Bar::Value { interval: Some((low, high)), .. } => [Some(*low), Some(*high)],
            _ => [None, None],
        };
        ends.into_iter().flatten().chain(self.value())
    }
}

impl From<f64> for Bar {
    fn from(value: f64) -> Bar {
        if value.is_finite() { Bar::Value { value, interval: None } } else { Bar::Unknown }
    }
}

/// A bar chart: groups, with one bar per series in each group. The value is printed beside each bar.
#[derive(Clone, Debug)]
pub struct BarChart {
    title: String,
    value_axis: String,
    series: Vec<String>,
    groups: Vec<(String, Vec<Bar>)>,
    stacked: bool,
    drawn_max: f64,
    shown: fn(f64) -> String,
}

/// A row of bars as drawn.
struct Row {
    /// Names the series for readers that do not see colours.
    name: String,
    parts: Vec<Part>,
    whisker: Option<Span>,
    /// Whether the bar is longer than the axis.
    is_cut: bool,
    value: String,
    is_known: bool,
}

struct Part {
    colour: usize,
    span: Span,
    name: String,
}

#[derive(Template)]
#[template(path = "bars.html")]
struct Drawing {
    title: String,
    axis: String,
    legend: Vec<Entry>,
    groups: Vec<(String, Vec<Row>)>,
    /// Characters of the longest value.
    value_length: usize,
    origin: f64,
}

impl BarChart {
    /// Creates a chart without bars. `value_axis` names the measured quantity and its unit.
    pub fn new(title: &str, value_axis: &str) -> BarChart {
        BarChart {
            title: title.to_string(),
            value_axis: value_axis.to_string(),
            series: Vec::new(),
            groups: Vec::new(),
            stacked: false,
            drawn_max: f64::INFINITY,
            shown: rounded,
        }
    }

    /// Names the series, in the order of the bars in each group. The legend is shown only with two or more
    /// series.
    pub fn series<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> BarChart {
        self.series = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a group of bars.
    pub fn group<B: Into<Bar>>(mut self, name: &str, bars: impl IntoIterator<Item = B>) -> BarChart {
        self.groups.push((name.to_string(), bars.into_iter().map(Into::into).collect()));
        self
    }

    /// Stacks the bars of each group. Intervals are not drawn in a stacked chart. A group with an unknown
    /// part is unknown.
    pub fn stacked(mut self) -> BarChart {
        self.stacked = true;
        self
    }

    /// Sets the end of the axis. A longer bar is cut off there and marked; its value is printed as it is.
    pub fn drawn_up_to(mut self, value: f64) -> BarChart {
        self.drawn_max = value;
        self
    }

    /// Sets how values are printed. Without it they have about three digits.
    pub fn shown(mut self, shown: fn(f64) -> String) -> BarChart {
        self.shown = shown;
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        let scale = Scale::of(self.extents().map(|value| value.min(self.drawn_max)), 0.0);
        let groups: Vec<(String, Vec<Row>)> = self
            .groups
            .iter()
            .map(|(name, bars)| {
                let rows = if self.stacked {
                    vec![self.stack(bars, scale)]
                } else {
                    let rows = bars.iter().enumerate().filter(|(_, bar)| **bar != Bar::Missing);
                    rows.map(|(at, bar)| self.row(at, bar, scale)).collect()
                };
                (plain(name), rows)
            })
            .filter(|(_, rows): &(_, Vec<Row>)| !rows.is_empty())
            .collect();
        let legend = if self.series.len() > 1 {
            self.series.iter().enumerate().map(|(at, name)| Entry::area(at, name)).collect()
        } else {
            Vec::new()
        };
        let values = groups.iter().flat_map(|(_, rows)| rows).map(|row| row.value.chars().count());
        let drawing = Drawing {
            title: plain(&self.title),
            axis: plain(&self.value_axis),
            legend,
            value_length: values.max().unwrap_or(0),
            groups,
            origin: scale.place(0.0),
        };
        // The template has no fallible part, and writing to a string cannot fail.
        Chart::new(&self.title, drawing.render().unwrap_or_default())
    }

    /// All numbers that the axis must show.
    fn extents(&self) -> impl Iterator<Item = f64> {
        self.groups.iter().flat_map(|(_, bars)| {
            let sum = self.stacked.then(|| bars.iter().filter_map(Bar::value).sum());
            let each = if self.stacked { &[][..] } else { bars.as_slice() };
            sum.into_iter().chain(each.iter().flat_map(Bar::extent))
        })
    }

    fn name(&self, series: usize) -> String {
        plain(self.series.get(series).map_or("", String::as_str))
    }

    fn row(&self, at: usize, bar: &Bar, scale: Scale) -> Row {
        let Some(value) = bar.value() else { return Row::unknown(self.name(at)) };
        let interval = match bar {
            Bar::Value { interval, .. } => *interval,
            Bar::Unknown | Bar::Missing => None,
        };
        let ends = interval.map(|(low, high)| format!(" ({} to {})", (self.shown)(low), (self.shown)(high)));
        Row {
            name: self.name(at),
            parts: vec![Part { colour: at % COLOURS, span: scale.span(0.0, value), name: self.name(at) }],
            whisker: interval.map(|(low, high)| scale.span(low, high)),
            is_cut: value > self.drawn_max,
            value: (self.shown)(value) + &ends.unwrap_or_default(),
            is_known: true,
        }
    }

    fn stack(&self, bars: &[Bar], scale: Scale) -> Row {
        if bars.iter().any(|bar| *bar != Bar::Missing && bar.value().is_none()) || bars.is_empty() {
            return Row::unknown(String::new());
        }
        let mut sum = 0.0;
        let mut parts = Vec::new();
        for (at, bar) in bars.iter().enumerate() {
            let value = bar.value().unwrap_or(0.0);
            let name = format!("{}: {}", self.name(at), (self.shown)(value));
            parts.push(Part { colour: at % COLOURS, span: scale.span(sum, sum + value), name });
            sum += value;
        }
        Row {
            name: String::new(),
            parts,
            whisker: None,
            is_cut: sum > self.drawn_max,
            value: (self.shown)(sum),
            is_known: true,
        }
    }
}

impl Row {
    fn unknown(name: String) -> Row {
        Row {
            name,
            parts: Vec::new(),
            whisker: None,
            is_cut: false,
            value: "unknown".to_string(),
            is_known: false,
        }
    }
}
