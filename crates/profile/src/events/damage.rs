//! What is wrong with a file, in a sentence.

/// The damage in a file: the first problem, and the number of problems.
#[derive(Default)]
pub(super) struct Damage {
    first: Option<String>,
    count: u64,
}

impl Damage {
    pub fn tell(&mut self, place: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some(place());
        }
    }

    pub fn sum(self, what: &str) -> Option<String> {
        let first = self.first?;
        Some(match self.count {
            1 => first,
            count => format!("{count} {what} are damaged and missing; the first: {first}"),
        })
    }
}
