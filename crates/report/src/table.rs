//! Tables for the terminal and for HTML pages.

use comfy_table::{CellAlignment, LineStyle, presets};

use crate::plain::plain;

/// A table of text: a head and rows. The terminal and the HTML pages use the same type. Characters that are
/// not visible are shown as spaces.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    right_from: Option<usize>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Table {
        Table {
            head: head.into_iter().map(|cell| plain(&Into::<String>::into(cell))).collect(),
            rows: Vec::new(),
            right_from: None,
        }
    }

    /// Right-aligns this column (counted from 0) and all after it. Use it for numbers.
    pub fn right_from(mut self, column: usize) -> Table {
        self.right_from = Some(column);
        self
    }

    /// Adds a row. Missing cells are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Table {
        self.rows.push(cells.into_iter().map(|cell| plain(&Into::<String>::into(cell))).collect());
        self
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The names of the columns.
    pub(crate) fn head(&self) -> &[String] {
        &self.head
    }

    /// Rows padded with empty cells to the width of the table.
    pub(crate) fn full_rows(&self) -> impl Iterator<Item = Vec<&str>> {
        let width = self.rows.iter().map(Vec::len).chain([self.head.len()]).max().unwrap_or(0);
        self.rows.iter().map(move |row| (0..width).map(|at| row.get(at).map_or("", String::as_str)).collect())
    }

    /// Returns whether a column is right-aligned.
    pub(crate) fn is_right(&self, column: usize) -> bool {
        self.right_from.is_some_and(|from| column >= from)
    }

    /// Returns the table as plain text for a terminal or a file, with a newline at the end. The table is as
    /// wide as its text: nothing is cut or wrapped.
    pub fn to_text(&self) -> String {
        self.to_indented_text(1)
    }

    /// Returns the same text with `indent` spaces before the first column.
    pub fn to_indented_text(&self, indent: u16) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
        if !self.head.is_empty() {
            table.set_header(&self.head);
        }
        for row in self.full_rows() {
            table.add_row(row);
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            if self.is_right(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if at == 0 {
                column.set_padding((indent, 1));
            }
        }
        let mut text: String = table.lines().map(|line| line.trim_end().to_string() + "\n").collect();
        if text.is_empty() {
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn the_first_column_is_indented() {
        let mut table = Table::new::<String>([]).right_from(0);
        table.row(["1", "a"]).row(["10", "b"]);
        let lines = |indent| table.to_indented_text(indent).lines().map(str::to_string).collect::<Vec<_>>();
        assert!(lines(0)[0].starts_with(" 1 ") && lines(0)[1].starts_with("10 "), "{:?}", lines(0));
        assert!(lines(4)[1].starts_with("    10 "), "{:?}", lines(4));
        assert_eq!(table.to_text(), table.to_indented_text(1));
    }
}
