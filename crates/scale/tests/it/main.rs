//! Predictions from outside: formulas, recorded runs, pages, and the published example.

mod formulas;
mod pages;
#[path = "../../examples/published.rs"]
mod published;
mod runs;
