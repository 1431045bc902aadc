//! Common parts of all charts: size, colours, safe labels and the SVG output.

use std::fmt::Write as _;

use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

use crate::plain::plain;

/// Width of every chart, in CSS pixels.
pub(crate) const WIDTH_PX: f64 = 760.0;

/// Height of charts whose height does not follow from their rows, in CSS pixels.
pub(crate) const HEIGHT_PX: f64 = 400.0;

/// Colours of series, distinguishable by colour-blind readers (Okabe and Ito, "Color Universal Design",
/// 2008), reordered to put the strongest contrasts first.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#000000"];

/// Returns the colour of the series with this number. Colours repeat after eight series.
pub(crate) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// Returns text that the drawing library shows unchanged. The library reads `$...$` as a formula, and XML
/// does not allow control characters.
pub(crate) fn label(text: &str) -> String {
    plain(text).replace('$', "\\$")
}

/// A drawn chart: an SVG picture without scripts, links or embedded fonts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    title: String,
    svg: String,
}

/// Prefixes of identifiers that must differ between the pictures of one page, at the definition and at each
/// use.
const LOCAL_NAMES: [(&str, &str); 2] = [("id=\"kuva-", "id=\""), ("url(#kuva-", "url(#")];

impl Chart {
    /// Draws the plots. `layout` already has its axes; the title is added here.
    pub(crate) fn draw(title: &str, plots: Vec<Plot>, layout: Layout) -> Chart {
        let svg = kuva::render_to_svg(plots, layout.with_title(label(title)));
        Chart { title: plain(title), svg: scalable(&svg) }
    }

    /// A picture that shows the title and "no data".
    pub(crate) fn empty(title: &str) -> Chart {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH_PX}\" height=\"80\" viewBox=\"0 0 {WIDTH_PX} \
             80\" font-family=\"sans-serif\"><text x=\"{x}\" y=\"30\" text-anchor=\"middle\">{title}</text><text \
             x=\"{x}\" y=\"60\" text-anchor=\"middle\">no data</text></svg>",
            x = WIDTH_PX / 2.0,
            title = xml(&plain(title)),
        );
        Chart { title: plain(title), svg }
    }

    /// The title. Characters that are not visible are shown as spaces.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The picture as the contents of a separate SVG file.
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// The picture for inclusion in a page with other pictures. Identifiers in it are prefixed with the
    /// picture's number.
    pub(crate) fn inline_svg(&self, number: usize) -> String {
        LOCAL_NAMES.iter().fold(self.svg.clone(), |svg, (name, before)| {
            svg.replace(name, &format!("{before}chart{number}-"))
        })
    }
}

/// Adds a view box, so that a page can scale the picture down.
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

/// Escapes text for use inside an element or an attribute.
fn xml(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html).map(|safe| safe.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_taken_literally() {
        assert_eq!(label("US$ and $x^2$\u{7}"), "US\\$ and \\$x^2\\$ ");
    }

    #[test]
    fn empty_pictures_escape_their_title() {
        let chart = Chart::empty("<b>&\"");
        assert!(!chart.svg().contains("<b>"), "{}", chart.svg());
        assert!(chart.svg().contains("no data"));
    }
}
