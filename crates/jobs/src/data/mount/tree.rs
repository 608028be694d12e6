//! Shows the names of objects as folders and files.

use std::collections::HashMap;

use stokehold_base::hash::Fnv;
use stokehold_base::random::mix;
use stokehold_objects::Object;

/// The root folder.
pub const ROOT: u64 = 1;

/// Folders and files by their numbers, which follow from their paths: a list with one more object has the same numbers for all
/// others. What keeps something by a file's number, as the cache of images does, finds it again.
pub struct Tree {
    nodes: HashMap<u64, Node>,
}

/// A folder or a file.
pub enum Node {
    Folder {
        parent: u64,
        /// Names and numbers, sorted by name.
        children: Vec<(Box<str>, u64)>,
    },
    /// The number of an object.
    File(usize),
}

impl Tree {
    /// The tree of a list of objects, of which none lies below another.
    pub fn new(objects: &[Object]) -> Self {
        let mut growing = Growing {
            nodes: HashMap::new(),
            numbers: HashMap::new(),
        };
        growing.nodes.insert(ROOT, growing.empty(ROOT));
        for (number, object) in objects.iter().enumerate() {
            let (folder, name) = object.key.rsplit_once('/').unwrap_or(("", &object.key));
            let folder = growing.folder(folder);
            growing.add(folder, name, Node::File(number));
        }
        let mut nodes = growing.nodes;
        for node in nodes.values_mut() {
            if let Node::Folder { children, .. } = node {
                children.sort_unstable();
            }
        }
        Self { nodes }
    }

    pub fn find(&self, folder: u64, name: &str) -> Option<u64> {
        let Node::Folder { children, .. } = self.node(folder)? else {
            return None;
        };
        let found = children.binary_search_by(|(known, _)| (**known).cmp(name));
        found.ok().map(|at| children[at].1)
    }

    pub fn node(&self, number: u64) -> Option<&Node> {
        self.nodes.get(&number)
    }
}

/// A tree under construction.
struct Growing<'a> {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<(u64, &'a str), u64>,
}

impl<'a> Growing<'a> {
    fn empty(&self, parent: u64) -> Node {
        Node::Folder {
            parent,
            children: Vec::new(),
        }
    }

    /// The number of a folder, which is created if needed.
    fn folder(&mut self, path: &'a str) -> u64 {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            at = match self.numbers.get(&(at, name)) {
                Some(&known) => known,
                None => self.add(at, name, self.empty(at)).unwrap_or(at),
            };
        }
        at
    }

    /// The number of a new node; `None` if the name is taken.
    fn add(&mut self, folder: u64, name: &'a str, node: Node) -> Option<u64> {
        if name.is_empty() || self.numbers.contains_key(&(folder, name)) {
            return None;
        }
        // 48 bits, which programs and layers above take. Of two with the same ones the later gets the next number.
        let mut number = mix(folder ^ Fnv::of(name.as_bytes())) >> 16;
        while number <= ROOT || self.nodes.contains_key(&number) {
            number += 1;
        }
        self.nodes.insert(number, node);
        self.numbers.insert((folder, name), number);
        if let Some(Node::Folder { children, .. }) = self.nodes.get_mut(&folder) {
            children.push((name.into(), number));
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(keys: &[(&str, u64)]) -> Tree {
        let objects: Vec<Object> = keys
            .iter()
            .map(|(key, size)| Object {
                key: (*key).to_owned(),
                size: *size,
                etag: None,
                modified: 0,
            })
            .collect();
        Tree::new(&objects)
    }

    fn names(tree: &Tree, folder: u64) -> Vec<&str> {
        match tree.node(folder) {
            Some(Node::Folder { children, .. }) => children.iter().map(|(name, _)| &**name).collect(),
            _ => panic!("{folder} is no folder"),
        }
    }

    #[test]
    fn numbers_stay_when_the_list_grows() {
        let number = |tree: &Tree, path: &str| {
            path.split('/')
                .try_fold(ROOT, |at, name| tree.find(at, name))
                .unwrap()
        };
        let before = tree(&[("b/1", 1), ("b/2", 1), ("c", 1)]);
        let after = tree(&[("a/0", 1), ("b/0", 1), ("b/1", 1), ("b/2", 1), ("c", 1)]);
        for path in ["b", "b/1", "b/2", "c"] {
            assert_eq!(number(&before, path), number(&after, path), "{path}");
        }
        assert_ne!(number(&after, "b/0"), number(&after, "a/0"));
    }

    #[test]
    fn keys_become_folders_and_files() {
        let tree = tree(&[("a-b/1", 1), ("a/b/2", 1), ("a/b/3", 1), ("a/c", 1), ("z", 1)]);
        assert_eq!(names(&tree, ROOT), ["a", "a-b", "z"]);
        let a = tree.find(ROOT, "a").unwrap();
        assert_eq!(names(&tree, a), ["b", "c"]);
        let b = tree.find(a, "b").unwrap();
        assert_eq!(names(&tree, b), ["2", "3"]);
        assert!(matches!(
            tree.node(tree.find(b, "3").unwrap()),
            Some(Node::File(2))
        ));
        assert!(matches!(tree.node(b), Some(Node::Folder { parent, .. }) if *parent == a));
        assert!(tree.find(ROOT, "2").is_none() && tree.node(0).is_none() && tree.node(99).is_none());
    }
}
