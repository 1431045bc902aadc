//! Tornado charts: the change of a result when one input at a time changes.

use kuva::plot::BarPlot;
use kuva::plot::legend::LegendPosition;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

use crate::chart::{Chart, WIDTH_PX, colour, label};

/// A tornado chart: one horizontal bar per input, from the result at the input's low value to the result at
/// its high value, around the base result. Bars are sorted by width, the widest at the top.
#[derive(Clone, Debug)]
pub struct Tornado {
    title: String,
    axis: String,
    base: f64,
    inputs: Vec<(String, f64, f64)>,
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
            self.inputs.push((name.to_string(), at_low, at_high));
        }
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Chart {
        if self.inputs.is_empty() || !self.base.is_finite() {
            return Chart::empty(&self.title);
        }
        let span = |(_, low, high): &(String, f64, f64)| {
            low.max(*high).max(self.base) - low.min(*high).min(self.base)
        };
        let mut inputs = self.inputs.clone();
        // Horizontal bars are drawn from the bottom up, so the narrowest comes first.
        inputs.sort_by(|a, b| span(a).total_cmp(&span(b)));
        let side = |name: &str, series: usize, result: fn(&(String, f64, f64)) -> f64| {
            let bars = inputs.iter().map(|input| (label(&input.0), result(input) - self.base));
            let plot = BarPlot::new().with_bars(bars.collect::<Vec<_>>()).with_color(colour(series));
            Plot::Bar(plot.with_legend(vec![name]).with_horizontal(true))
        };
        let plots = vec![side("input low", 0, |input| input.1), side("input high", 1, |input| input.2)];
        let axis = format!("change of {} (0 is {:.2})", self.axis, self.base);
        let layout = Layout::auto_from_plots(&plots)
            .with_width(WIDTH_PX)
            .with_height(150.0 + 28.0 * inputs.len() as f64)
            .with_x_label(label(&axis))
            .with_legend_position(LegendPosition::OutsideBottomColumns)
            .with_legend_box(false);
        Chart::draw(&self.title, plots, layout)
    }
}
