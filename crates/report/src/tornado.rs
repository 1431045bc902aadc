//! Tornado charts: how much a result depends on each input, over ranges of the inputs.

use askama::Template;

use crate::chart::{Chart, Entry};
use crate::number::rounded;
use crate::plain::plain;
use crate::scale::{Scale, Span};

/// A tornado chart: one horizontal bar per input, from the result at the input's low value to the result at
/// its high value, around the base result. Bars are sorted by width, the widest at the top.
#[derive(Clone, Debug)]
pub struct Tornado {
    title: String,
    axis: String,
    base: f64,
    inputs: Vec<Input>,
}

/// An input: its name and the results at both ends of its range.
#[derive(Clone, Debug)]
struct Input {
    name: String,
    at_low: f64,
    at_high: f64,
}

/// A row as drawn.
struct Row {
    name: String,
    /// From the base to the results at the low and at the high value.
    spans: [Span; 2],
    value: String,
}

#[derive(Template)]
#[template(path = "tornado.html")]
struct Drawing {
    title: String,
    axis: String,
    legend: Vec<Entry>,
    rows: Vec<Row>,
    /// Characters of the longest value.
    value_length: usize,
    base: f64,
}

impl Tornado {
    /// Creates a chart without bars. `axis` names the result and its unit. `base` is the result with all
    /// inputs unchanged.
    pub fn new(title: &str, axis: &str, base: f64) -> Tornado {
        Tornado { title: title.to_string(), axis: axis.to_string(), base, inputs: Vec::new() }
    }

    /// Adds an input. `name` should include the range of the input. `at_low` and `at_high` are the results at
    /// its low and its high value. An input with a result that is not finite is omitted.
    pub fn input(mut self, name: &str, at_low: f64, at_high: f64) -> Tornado {
        if at_low.is_finite() && at_high.is_finite() {
            self.inputs.push(Input { name: name.to_string(), at_low, at_high });
        }
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        let mut inputs = if self.base.is_finite() { self.inputs.clone() } else { Vec::new() };
        let width =
            |it: &Input| it.at_low.max(it.at_high).max(self.base) - it.at_low.min(it.at_high).min(self.base);
        inputs.sort_by(|a, b| width(b).total_cmp(&width(a)));
        let scale = Scale::of(inputs.iter().flat_map(|it| [it.at_low, it.at_high]), self.base);
        let rows: Vec<Row> = inputs
            .iter()
            .map(|it| Row {
                name: plain(&it.name),
                spans: [it.at_low, it.at_high].map(|result| scale.span(self.base, result)),
                value: format!("{} to {}", rounded(it.at_low), rounded(it.at_high)),
            })
            .collect();
        let drawing = Drawing {
            title: plain(&self.title),
            axis: format!("{}, {} as it is", plain(&self.axis), rounded(self.base)),
            legend: vec![Entry::area(0, "input low"), Entry::area(1, "input high")],
            value_length: rows.iter().map(|row| row.value.chars().count()).max().unwrap_or(0),
            base: scale.place(self.base),
            rows,
        };
        // The template has no fallible part, and writing to a string cannot fail.
        Chart::new(&self.title, drawing.render().unwrap_or_default())
    }
}
