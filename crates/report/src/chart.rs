//! What all charts share: size, colours, safe labels, and the SVG at the end.

use std::fmt::Write as _;

use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

/// Width of every chart, in CSS pixels.
pub(crate) const WIDTH_PX: f64 = 760.0;

/// Height of charts whose height does not follow from their rows, in CSS pixels.
pub(crate) const HEIGHT_PX: f64 = 400.0;

/// Colours of series, told apart by colour-blind readers too (Okabe and Ito, "Color Universal Design", 2008), in another
/// order: the strongest contrasts first.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#000000"];

/// The colour of the series with this number; they repeat after eight.
pub(crate) fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// Text as the drawing library will show it unchanged: it reads `$...$` as formulas, and control characters are no XML.
pub(crate) fn label(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.collect::<String>().replace('$', "\\$")
}

/// A drawn chart: an SVG picture without scripts, links or fonts of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    title: String,
    svg: String,
}

/// Names inside a picture that must differ between the pictures of one page: where they are defined, and where used.
const LOCAL_NAMES: [(&str, &str); 2] = [("id=\"kuva-", "id=\""), ("url(#kuva-", "url(#")];

impl Chart {
    /// Draws; `layout` has axes, and gets the title here.
    pub(crate) fn draw(title: &str, plots: Vec<Plot>, layout: Layout) -> Chart {
        let svg = kuva::render_to_svg(plots, layout.with_title(label(title)));
        Chart { title: title.to_string(), svg: scalable(&svg) }
    }

    /// A picture that says that there is nothing to show.
    pub(crate) fn empty(title: &str) -> Chart {
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH_PX}\" height=\"80\" viewBox=\"0 0 {WIDTH_PX} 80\" \
             font-family=\"sans-serif\"><text x=\"{x}\" y=\"30\" text-anchor=\"middle\">{title}</text><text x=\"{x}\" \
             y=\"60\" text-anchor=\"middle\">no data</text></svg>",
            x = WIDTH_PX / 2.0,
            title = xml(title),
        );
        Chart { title: title.to_string(), svg }
    }

    /// The title, as given.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The picture as a file of its own would hold it.
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// The picture for a page that holds others: names used inside it get the picture's number.
    pub(crate) fn inline_svg(&self, number: usize) -> String {
        LOCAL_NAMES.iter().fold(self.svg.clone(), |svg, (name, before)| {
            svg.replace(name, &format!("{before}chart{number}-"))
        })
    }
}

/// Adds a view box, so that a page may show the picture narrower than it was drawn.
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

/// Text inside an element or an attribute.
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
