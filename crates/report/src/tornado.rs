//! Tornado charts: how much a result moves when each input moves alone.

use kuva::plot::BarPlot;
use kuva::plot::legend::LegendPosition;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

use crate::chart::{Chart, WIDTH_PX, colour, label};

/// A tornado chart: one lying bar an input, from the result at the input's low value to that at its high value, around the
/// result as it stands. The widest comes on top, whatever the order given.
#[derive(Clone, Debug)]
pub struct Tornado {
    title: String,
    axis: String,
    base: f64,
    inputs: Vec<(String, f64, f64)>,
}

impl Tornado {
    /// A chart without bars. `axis` says what the result measures, with its unit; `base` is the result as it stands.
    pub fn new(title: &str, axis: &str, base: f64) -> Tornado {
        Tornado { title: title.to_string(), axis: axis.to_string(), base, inputs: Vec::new() }
    }

    /// Adds an input: its name (with the range it moves over), the result at its low and at its high value. Inputs with
    /// results that are not finite are left out.
    pub fn input(mut self, name: &str, at_low: f64, at_high: f64) -> Tornado {
        if at_low.is_finite() && at_high.is_finite() {
            self.inputs.push((name.to_string(), at_low, at_high));
        }
        self
    }

    /// Draws it.
    pub fn draw(&self) -> Chart {
        if self.inputs.is_empty() || !self.base.is_finite() {
            return Chart::empty(&self.title);
        }
        let span = |(_, low, high): &(String, f64, f64)| {
            low.max(*high).max(self.base) - low.min(*high).min(self.base)
        };
        let mut inputs = self.inputs.clone();
        // Lying bars are drawn from the bottom up: narrowest first.
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
