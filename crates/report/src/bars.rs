//! Bar charts: groups of vertical or horizontal bars, side by side or stacked, with optional intervals.

use kuva::plot::BarPlot;
use kuva::plot::legend::LegendPosition;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

use crate::chart::{Chart, HEIGHT_PX, WIDTH_PX, colour, label};

/// One bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    value: f64,
    interval: Option<(f64, f64)>,
}

impl Bar {
    /// A value with its interval, drawn as a whisker from `low` to `high`.
    pub fn within(value: f64, low: f64, high: f64) -> Bar {
        Bar { value, interval: Some((low, high)) }
    }

    /// A missing bar, for a series without a value in a group.
    pub fn missing() -> Bar {
        Bar::from(f64::NAN)
    }

    /// The value to draw; 0 if the value is not finite.
    fn height(&self) -> f64 {
        if self.value.is_finite() { self.value } else { 0.0 }
    }

    /// Lengths of the lower and the upper arm of the whisker; 0 for an arm that is negative or not finite.
    fn arms(&self) -> (f64, f64) {
        let (low, high) = self.interval.unwrap_or((self.value, self.value));
        let arm = |length: f64| if length.is_finite() { length.max(0.0) } else { 0.0 };
        (arm(self.value - low), arm(high - self.value))
    }
}

impl From<f64> for Bar {
    fn from(value: f64) -> Bar {
        Bar { value, interval: None }
    }
}

/// A bar chart: groups along one axis, with one bar per series in each group.
#[derive(Clone, Debug)]
pub struct BarChart {
    title: String,
    value_axis: String,
    series: Vec<String>,
    groups: Vec<(String, Vec<Bar>)>,
    stacked: bool,
    lying: bool,
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
            lying: false,
        }
    }

    /// Names the series, in the order of the bars in each group. The legend is shown only with two or more
    /// series, all named.
    pub fn series<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> BarChart {
        self.series = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a group of bars.
    pub fn group<B: Into<Bar>>(mut self, name: &str, bars: impl IntoIterator<Item = B>) -> BarChart {
        self.groups.push((name.to_string(), bars.into_iter().map(Into::into).collect()));
        self
    }

    /// Stacks the bars of each group. Intervals are not drawn in a stacked chart.
    pub fn stacked(mut self) -> BarChart {
        self.stacked = true;
        self
    }

    /// Draws horizontal bars with the first group at the top. Use it for many groups or long names.
    pub fn lying(mut self) -> BarChart {
        self.lying = true;
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        let width = self.groups.iter().map(|(_, bars)| bars.len()).max().unwrap_or(0);
        if width == 0 {
            return Chart::empty(&self.title);
        }
        let mut plot = BarPlot::new().with_horizontal(self.lying);
        let mut whiskers = Vec::new();
        // Horizontal bars are drawn from the bottom up.
        let ordered: Vec<_> =
            if self.lying { self.groups.iter().rev().collect() } else { self.groups.iter().collect() };
        for (name, bars) in ordered {
            let bars: Vec<Bar> =
                (0..width).map(|at| bars.get(at).copied().unwrap_or(Bar::missing())).collect();
            whiskers.extend(bars.iter().map(Bar::arms));
            plot = plot
                .with_group(label(name), bars.iter().enumerate().map(|(at, bar)| (bar.height(), colour(at))));
        }
        if self.stacked {
            plot = plot.with_stacked();
        } else if whiskers.iter().any(|arms| *arms != (0.0, 0.0)) {
            plot = plot.with_asymmetric_error(whiskers);
        }
        let names: Vec<String> = self.series.iter().take(width).map(|name| label(name)).collect();
        if width > 1 && names.len() == width {
            plot = plot.with_legend(names.iter().map(String::as_str).collect());
        }
        let plots = vec![Plot::Bar(plot)];
        let layout = Layout::auto_from_plots(&plots)
            .with_width(WIDTH_PX)
            .with_legend_position(LegendPosition::OutsideBottomColumns)
            .with_legend_box(false);
        let value_axis = label(&self.value_axis);
        let layout = if self.lying {
            let rows = if self.stacked { self.groups.len() } else { self.groups.len() * width };
            layout.with_x_label(value_axis).with_height(130.0 + 24.0 * rows as f64)
        } else {
            layout.with_y_label(value_axis).with_height(HEIGHT_PX)
        };
        Chart::draw(&self.title, plots, layout)
    }
}
