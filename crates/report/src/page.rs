//! Single-file HTML pages.

use askama::Template;

use crate::plain::{plain, plain_lines};
use crate::{Chart, Table};

/// A piece of a page.
#[derive(Clone, Debug)]
enum Block {
    Heading(String),
    Paragraph(String),
    List(Vec<String>),
    Preformatted(String),
    Table { caption: String, table: Table },
    Chart(Chart),
}

/// An HTML page, from top to bottom. Characters that are not visible are shown as spaces.
#[derive(Clone, Debug, Template)]
#[template(path = "page.html")]
pub struct Page {
    title: String,
    made: String,
    blocks: Vec<Block>,
}

impl Page {
    /// Creates a page with only a title.
    pub fn new(title: &str) -> Page {
        Page { title: plain(title), made: String::new(), blocks: Vec::new() }
    }

    /// Sets the line below the title: the date, and the program with its version.
    pub fn made(mut self, date: &str, program: &str) -> Page {
        self.made = format!("{}, {}", plain(date), plain(program));
        self
    }

    fn with(mut self, block: Block) -> Page {
        self.blocks.push(block);
        self
    }

    /// Adds a section heading.
    pub fn heading(self, text: &str) -> Page {
        self.with(Block::Heading(plain(text)))
    }

    /// Adds a paragraph.
    pub fn paragraph(self, text: &str) -> Page {
        self.with(Block::Paragraph(plain(text)))
    }

    /// Adds a list of short texts.
    pub fn list<S: Into<String>>(self, items: impl IntoIterator<Item = S>) -> Page {
        self.with(Block::List(items.into_iter().map(|item| plain(&Into::<String>::into(item))).collect()))
    }

    /// Adds text whose spaces and line breaks are kept, such as a command or an excerpt of a file.
    pub fn preformatted(self, text: &str) -> Page {
        self.with(Block::Preformatted(plain_lines(text)))
    }

    /// Adds a table.
    pub fn table(self, table: &Table) -> Page {
        self.captioned_table("", table)
    }

    /// Adds a table with a caption above it.
    pub fn captioned_table(self, caption: &str, table: &Table) -> Page {
        self.with(Block::Table { caption: plain(caption), table: table.clone() })
    }

    /// Adds a chart.
    pub fn chart(self, chart: &Chart) -> Page {
        self.with(Block::Chart(chart.clone()))
    }

    /// Returns the contents of the HTML file.
    pub fn to_html(&self) -> String {
        // The template has no fallible part, and writing to a string cannot fail.
        self.render().unwrap_or_default()
    }
}
