//! A screen in memory: characters with colours, and the text that puts them on a terminal.

use std::fmt::Write;

/// Colours by their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// The terminal's own.
    Plain,
    /// For less important text.
    Soft,
    /// Cores.
    Core,
    /// GPUs.
    Gpu,
    /// Waiting.
    Wait,
}

impl Colour {
    /// The escape sequence for it, from the 256 colours that terminals agree on: readable on light and dark.
    fn sequence(self) -> &'static str {
        match self {
            Self::Plain => "\x1b[0m",
            Self::Soft => "\x1b[0;38;5;244m",
            Self::Core => "\x1b[0;38;5;172m",
            Self::Gpu => "\x1b[0;38;5;31m",
            Self::Wait => "\x1b[0;38;5;160m",
        }
    }
}

/// A screen of characters, each one column wide.
pub struct Frame {
    width: usize,
    height: usize,
    cells: Vec<(char, Colour)>,
}

impl Frame {
    /// An empty screen.
    pub fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            cells: vec![(' ', Colour::Plain); width * height],
        }
    }

    /// Writes text at a position, up to the end of the line. Characters that would control the terminal, or
    /// are not one column wide, become question marks.
    pub fn put(&mut self, x: usize, y: usize, colour: Colour, text: &str) {
        if y >= self.height {
            return;
        }
        let line = &mut self.cells[y * self.width..(y + 1) * self.width];
        for (cell, c) in std::iter::zip(line.iter_mut().skip(x), text.chars()) {
            // Blocks and arrows are our own; any other character beyond Latin may be wide or combining.
            let narrow = matches!(c, ' '..='~' | '\u{a1}'..='\u{24f}' | '\u{2010}'..='\u{2027}' | '\u{2580}'..='\u{259f}');
            *cell = (if narrow { c } else { '?' }, colour);
        }
    }

    /// The text of a line, without colours and trailing blanks.
    #[cfg(test)]
    pub fn line(&self, y: usize) -> String {
        let line = &self.cells[y * self.width..(y + 1) * self.width];
        let text: String = line.iter().map(|cell| cell.0).collect();
        text.trim_end().to_owned()
    }

    /// The text that draws the screen, from its upper left corner on. `coloured` enables colours.
    pub fn text(&self, coloured: bool) -> String {
        let mut text = "\x1b[H".to_owned();
        for (y, line) in self.cells.chunks(self.width.max(1)).enumerate() {
            // Each line is positioned, so that a line that the terminal wraps does not move the others.
            let _ = write!(text, "\x1b[{};1H", y + 1);
            let mut colour = Colour::Plain;
            for &(c, of) in line {
                if of != colour && coloured {
                    text += of.sequence();
                    colour = of;
                }
                text.push(c);
            }
            if colour != Colour::Plain {
                text += Colour::Plain.sequence();
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_the_terminal_does_not_get_through() {
        let mut frame = Frame::new(12, 2);
        frame.put(0, 0, Colour::Plain, "a\x1b[31m\n\u{202e}界");
        frame.put(10, 1, Colour::Core, "abc");
        frame.put(0, 9, Colour::Core, "below");
        assert_eq!([frame.line(0), frame.line(1)], ["a?[31m???", "          ab"]);
        assert_eq!(frame.text(false).matches('\x1b').count(), 3);
        assert!(frame.text(true).contains("\x1b[0;38;5;172mab\x1b[0m"));
        assert!(!frame.text(false).contains("\x1b[0;38"));
    }

    #[test]
    fn a_screen_of_no_size_is_no_error() {
        let mut frame = Frame::new(0, 0);
        frame.put(0, 0, Colour::Plain, "text");
        assert_eq!(frame.text(true), "\x1b[H");
    }
}
