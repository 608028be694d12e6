//! The common parts of all pages, and tables, which can also be written as text and Markdown.
//!
//! A page is one file that needs no network: [`html::document`] has the frame and the one style,
//! [`html::section`] and [`html::figure`] are its cards, [`svg::Svg`] draws into them, and a [`Table`] is
//! written as HTML, Markdown or text. Everything is well-formed XML, so that any XML parser reads a page, and
//! all text from outside is escaped when it is written.
//!
//! ```
//! use stokehold_page::{Table, html};
//! let mut table = Table::new(&["trial", "loss"], &[0]);
//! table.row(["<best>", "0.12"]);
//! assert_eq!(table.text(), "trial   loss\n<best>  0.12\n");
//! let page = html::document("Trials", "", &html::section("All", &table.html()), "");
//! assert!(page.contains("&lt;best&gt;"));
//! ```

pub mod html;
pub mod svg;
mod table;
pub mod words;

pub use table::Table;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
