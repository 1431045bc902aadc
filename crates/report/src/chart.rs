//! Common parts of all charts: the legend, safe labels and the output.

use crate::plain::plain;

/// Number of colours of series. The style sheet of a page has each for light and dark backgrounds:
/// distinguishable by colour-blind readers (Okabe and Ito, "Color Universal Design", 2008), the strongest
/// contrasts first.
pub(crate) const COLOURS: usize = 8;

/// A line of a legend.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Number of the colour.
    pub(crate) colour: usize,
    /// Dashes of a line as in SVG; `None` for an area.
    pub(crate) dashes: Option<&'static str>,
    /// Name of the series.
    pub(crate) name: String,
}

impl Entry {
    /// The entry of a series that is drawn as an area.
    pub(crate) fn area(series: usize, name: &str) -> Entry {
        Entry { colour: series % COLOURS, dashes: None, name: plain(name) }
    }
}

/// A drawn chart: a part of a page, without scripts, links, pictures from elsewhere or embedded fonts. It
/// fits any width from that of a phone, and takes its colours from the style sheet of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    title: String,
    html: String,
}

impl Chart {
    /// A chart whose `html` shows the title and has all text escaped.
    pub(crate) fn new(title: &str, html: String) -> Chart {
        Chart { title: plain(title), html }
    }

    /// The title. Characters that are not visible are shown as spaces.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The chart as HTML.
    pub fn html(&self) -> &str {
        &self.html
    }

    /// The HTML for inclusion in a page with other charts. Identifiers in it are prefixed with the chart's
    /// number.
    pub(crate) fn numbered(&self, number: usize) -> String {
        self.html
            .replace("id=\"kuva-", &format!("id=\"chart{number}-"))
            .replace("url(#kuva-", &format!("url(#chart{number}-"))
    }
}
