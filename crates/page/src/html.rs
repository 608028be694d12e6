//! The frame of a page and the pieces that it is made of.

use crate::svg::escape;

/// The style that all pages share: colours, letters, cards, tables, pictures. Light and dark, down to 390 pixels, and on paper.
pub const STYLE: &str = include_str!("style.css");

/// A whole page: [`STYLE`] and what `style` adds to it, `body`, and `scripts` below it, which are read last.
pub fn document(title: &str, style: &str, body: &str, scripts: &str) -> String {
    format!(
        "<!DOCTYPE html>\n\
         <html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         {scripts}</body>\n</html>\n",
        title = escape(title)
    )
}

/// A card with a heading.
pub fn section(heading: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(heading))
}

/// A card with a heading and a sentence about what is in it.
pub fn noted(heading: &str, note: &str, body: &str) -> String {
    section(heading, &(paragraph("note", note) + body))
}

/// A picture with its heading and a sentence.
pub fn figure(heading: &str, sentence: &str, picture: &str) -> String {
    format!(
        "<figure>\n<figcaption><h2>{}</h2>\n<p class=\"note\">{}</p></figcaption>\n{picture}</figure>\n",
        escape(heading),
        escape(sentence)
    )
}

/// A sentence.
pub fn paragraph(class: &str, text: &str) -> String {
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    };
    format!("<p{class}>{}</p>\n", escape(text))
}
