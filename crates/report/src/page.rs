//! HTML pages that are one file.

use askama::Template;

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

/// An HTML page, from top to bottom.
#[derive(Clone, Debug, Template)]
#[template(path = "page.html")]
pub struct Page {
    title: String,
    blocks: Vec<Block>,
}

impl Page {
    /// A page with nothing but its title.
    pub fn new(title: &str) -> Page {
        Page { title: title.to_string(), blocks: Vec::new() }
    }

    fn with(mut self, block: Block) -> Page {
        self.blocks.push(block);
        self
    }

    /// A heading of a section.
    pub fn heading(self, text: &str) -> Page {
        self.with(Block::Heading(text.to_string()))
    }

    /// A paragraph.
    pub fn paragraph(self, text: &str) -> Page {
        self.with(Block::Paragraph(text.to_string()))
    }

    /// A list of short texts.
    pub fn list<S: Into<String>>(self, items: impl IntoIterator<Item = S>) -> Page {
        self.with(Block::List(items.into_iter().map(Into::into).collect()))
    }

    /// Text whose spaces and lines are kept: a command, an excerpt of a file.
    pub fn preformatted(self, text: &str) -> Page {
        self.with(Block::Preformatted(text.to_string()))
    }

    /// A table.
    pub fn table(self, table: &Table) -> Page {
        self.captioned_table("", table)
    }

    /// A table with a caption above it.
    pub fn captioned_table(self, caption: &str, table: &Table) -> Page {
        self.with(Block::Table { caption: caption.to_string(), table: table.clone() })
    }

    /// A chart.
    pub fn chart(self, chart: &Chart) -> Page {
        self.with(Block::Chart(chart.clone()))
    }

    /// The file.
    pub fn to_html(&self) -> String {
        // A template without fallible parts, written to a string, cannot fail.
        self.render().unwrap_or_default()
    }
}
