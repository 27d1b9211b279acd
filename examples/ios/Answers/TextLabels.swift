#if canImport(MediaPipeTasksText)
import MediaPipeTasksText

/// Names the labels of a text, by a file that was exported for MediaPipe.
final class TextLabels {
  private let classifier: TextClassifier

  init(path: String) throws {
    let options = TextClassifierOptions()
    options.baseOptions.modelAssetPath = path
    options.maxResults = 3
    classifier = try TextClassifier(options: options)
  }

  /// Labels and scores, the best first.
  func of(_ text: String) throws -> [(String, Float)] {
    let result = try classifier.classify(text: text).classificationResult
    // One entry for each output of the model.
    return result.classifications[0].categories.map {
      ($0.categoryName ?? "", $0.score)
    }
  }
}
#endif
